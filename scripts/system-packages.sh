#!/usr/bin/env bash
# Installs the tools and libraries that cargo does not provide. Silent if they are installed.
# usage: system-packages.sh [PROGRAM...]   PROGRAMs are Debian packages with a program of the same name;
#                                          "alsa": to build the feature `desktop`;
#                                          "clang": to build the reference engine, engine/;
#                                          "sound": a sound server without a sound card, for its tests
set -euo pipefail

missing=()
need() { # need PACKAGE COMMAND...: PACKAGE is missing unless COMMAND succeeds
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

need cmake cmake --version
need g++ g++ --version
need pkg-config pkg-config --version
need espeak-ng espeak-ng --version
need python3 python3 --version
need python3-venv python3 -c 'import venv, ensurepip'
for program in "$@"; do
    case $program in
        alsa) need libasound2-dev pkg-config --exists alsa ;;
        clang)
            need clang clang --version
            need libclang-dev sh -c 'ls /usr/lib/llvm-*/lib/libclang.so'
            ;;
        sound)
            need pulseaudio pulseaudio --version
            need pulseaudio-utils command -v pactl
            ;;
        *) need "$program" command -v "$program" ;;
    esac
done

if [ "${#missing[@]}" -gt 0 ]; then
    install="apt-get install -y --no-install-recommends ${missing[*]}"
    echo "missing system packages: ${missing[*]}"
    if ! command -v apt-get >/dev/null; then
        echo "these are their Debian names; install what your system calls them, and run this again" >&2
        exit 1
    elif [ "$(id -u)" -eq 0 ]; then
        as_root=()
    elif sudo -n true 2>/dev/null; then
        as_root=(sudo)
    else
        echo "they need root once; run this, then try again:" >&2
        echo "    sudo sh -c 'apt-get update && $install'" >&2
        exit 1
    fi
    "${as_root[@]}" apt-get update -qq
    # shellcheck disable=SC2086  # the words of $install are its arguments
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install >/dev/null </dev/null
fi

if ! cargo --version >/dev/null 2>&1; then
    echo "Rust is missing: install it from https://rustup.rs (no root needed), open a new shell, and run this again" >&2
    exit 1
fi
