#!/bin/sh
# A launcher for tests, which starts nothing. It is of the MPI that its name says, or where that is
# mpirun, FAKE_MPI: openmpi-4.1.4, hydra-4.0.2, or else what it says of itself. Started, it prints
# its process id and its arguments, a line each, and ends with status 7.
name=${0##*/}
[ "$name" != mpirun ] || name=$FAKE_MPI
if [ "$1" = --version ]; then
    case $name in
        openmpi-*) echo "mpirun (Open MPI) ${name#openmpi-}" ;;
        hydra-*) printf 'HYDRA build details:\n    Version:    %s\n' "${name#hydra-}" ;;
        *) echo "$name" ;;
    esac
    exit 0
fi
echo "$$"
printf '%s\n' "$@"
exit 7
