#!/bin/sh
# A fake launcher for tests, which starts nothing. Its name, or FAKE_MPI if its name is mpirun, is
# its MPI: openmpi-4.1.4, hydra-4.0.2, or any other text to print for --version. Otherwise, it
# prints its process id and its arguments, one per line, and exits with status 7.
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
