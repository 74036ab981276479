#!/usr/bin/env bash
# Installs the tools and libraries that a fresh Debian machine lacks, or prints the commands.
#
#   tools/setup.sh [--check] GROUP...      GROUP: build, mpi, fuzz
#
# Installs only what is missing, so a second run is quick and needs no network. Without root, or
# with --check, prints the exact commands and runs none of them. Status: 0; 1 if something is
# missing that it cannot install, or with --check if anything is missing.
set -euo pipefail

# The commands still to be run, in order.
steps=()
# "yes" if it cannot be determined here whether everything is installed.
unknown=no

packages_of() {
    case $1 in
        build) echo clang llvm libelf-dev zlib1g-dev pkg-config iproute2 ethtool jq util-linux ;;
        # MPI programs in C, Fortran and Python; mpi4py is built against each MPI.
        mpi) echo openmpi-bin libopenmpi-dev mpich libmpich-dev gfortran python3-dev python3-venv ;;
        # libfuzzer is C++.
        fuzz) echo g++ ;;
    esac
}

is_installed() {
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

plan_packages() {
    local package missing=()
    if ! command -v dpkg-query >/dev/null; then
        echo "setup: not a Debian machine; install what corresponds to: $*" >&2
        unknown=yes
        return
    fi
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    if [[ ${#missing[@]} -gt 0 ]]; then
        local install="DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends"
        steps+=("apt-get update -q" "$install ${missing[*]}")
    fi
}

plan_components() {
    cargo fmt --version >/dev/null 2>&1 || steps+=("rustup component add rustfmt")
    cargo clippy --version >/dev/null 2>&1 || steps+=("rustup component add clippy")
}

plan_fuzz_tools() {
    if ! rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
        steps+=("rustup toolchain install nightly --profile minimal")
    fi
    # Required by `cargo xtask sanitize`.
    local component components
    components=$(rustup component list --installed --toolchain nightly 2>/dev/null || true)
    for component in rust-src miri; do
        grep -q "^$component" <<<"$components" ||
            steps+=("rustup component add --toolchain nightly $component")
    done
    command -v cargo-fuzz >/dev/null || steps+=("cargo install --locked cargo-fuzz")
}

main() {
    local check=no group packages=() step
    if [[ ${1-} == --check ]]; then
        check=yes
        shift
    fi
    if [[ $# -eq 0 ]]; then
        echo "usage: tools/setup.sh [--check] build|mpi|fuzz ..." >&2
        exit 2
    fi
    for group in "$@"; do
        case $group in
            build | mpi | fuzz) ;;
            *)
                echo "setup: no group named '$group'; there are build, mpi and fuzz" >&2
                exit 2
                ;;
        esac
        read -ra words <<<"$(packages_of "$group")"
        packages+=("${words[@]}")
    done
    plan_packages "${packages[@]}"
    if ! command -v cargo >/dev/null; then
        echo "setup: cargo is missing; https://rustup.rs tells how to install Rust" >&2
        unknown=yes
    else
        for group in "$@"; do
            case $group in
                build) plan_components ;;
                fuzz) plan_fuzz_tools ;;
            esac
        done
    fi

    if [[ ${#steps[@]} -eq 0 && $unknown == yes ]]; then
        exit 1
    elif [[ ${#steps[@]} -eq 0 ]]; then
        echo "setup $*: everything is there"
    elif [[ $check == yes ]]; then
        echo "setup $*: missing; 'make setup' as root runs:" >&2
        printf '    %s\n' "${steps[@]}" >&2
        exit 1
    elif [[ $(id -u) -ne 0 ]]; then
        echo "setup $*: not root, so nothing is done; root would run:"
        printf '    %s\n' "${steps[@]}"
    else
        for step in "${steps[@]}"; do
            printf '+ %s\n' "$step"
            bash -c "$step"
        done
    fi
    if [[ $unknown == yes ]]; then
        echo "setup $*: not all of it can be installed here; see what is said at the beginning" >&2
        exit 1
    fi
}

main "$@"
