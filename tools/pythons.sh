#!/usr/bin/env bash
# Pythons that this machine lacks, in a folder of their own: `tools/pythons.sh FOLDER VERSION...`.
#
# Makes FOLDER/pythonVERSION, which runs that Python with what Lucerne and its tests need. Nothing is
# installed: the packages of Debian's unstable release, which has every Python soon after it is out,
# are unpacked into the folder together with the C library they were built for, and started through
# its loader. They come from wherever this machine gets its packages (apt's and pip's settings).
#
# MACHINE=aarch64 brings the Python of that processor, which qemu-user-static runs here.
set -euo pipefail

die() {
    echo "pythons: $*" >&2
    exit 1
}

(($# >= 2)) || die "usage: tools/pythons.sh FOLDER VERSION..., as in: tools/pythons.sh /tmp/pythons 3.15"
for tool in apt-get dpkg-deb python3; do
    command -v "$tool" >/dev/null || die "$tool is needed: this works on Debian and its relatives"
done
[[ $(uname -m) == x86_64 ]] || die "the list of packages below is for x86_64"
machine=${MACHINE:-x86_64}
case $machine in
    x86_64) debian=amd64 ;;
    aarch64)
        debian=arm64
        command -v qemu-aarch64-static >/dev/null || die "qemu-aarch64-static is needed: apt-get install qemu-user-static"
        ;;
    *) die "MACHINE is x86_64 or aarch64, not $machine" ;;
esac

folder=$(realpath -m "$1")
shift
root=$folder/root
libraries=(libc6 libexpat1 zlib1g libssl3t64 libffi8 libsqlite3-0 libbz2-1.0 liblzma5 libzstd1 libncursesw6
    libtinfo6 libreadline8t64 libuuid1 libgcc-s1 libstdc++6 libmpdec4 libcrypt1)
wheels=(numpy llvmlite safetensors pytest pytest-xdist hypothesis execnet pluggy iniconfig packaging
    pygments sortedcontainers)
mkdir -p "$folder"/{lists/partial,cache/archives/partial,packages,root}

# The address this machine has its packages from, in either form of apt's settings.
address=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } |
    awk '/^(URIs:|deb )/ && !/security/ && match($0, /[a-z]+:\/[^ ]+/) { print substr($0, RSTART, RLENGTH); exit }')
[[ -n $address ]] || die "apt has no source of packages"
echo "deb [trusted=yes] $address sid main" >"$folder/sources.list"
apt=(apt-get -qq -o "APT::Architecture=$debian" -o "APT::Architectures=$debian"
    -o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache"
    -o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=-)
"${apt[@]}" update || die "the list of packages could not be had: no network?"

packages=("${libraries[@]}")
for version in "$@"; do
    packages+=("python$version" "python$version-minimal" "libpython$version" "libpython$version-minimal"
        "libpython$version-stdlib")
done
(cd "$folder/packages" && "${apt[@]}" download "${packages[@]}") || die "a package could not be had"
for package in "$folder"/packages/*.deb; do
    dpkg-deb -x "$package" "$root"
done
[[ -e $root/lib ]] || ln -s usr/lib "$root/lib" # where programs name their loader

for version in "$@"; do
    platforms=()
    for glibc in 2_28 2_27 2_17; do
        platforms+=(--platform "manylinux_${glibc}_$machine")
    done
    "${PYTHON:-python3}" -m pip install --quiet --upgrade --no-deps --ignore-requires-python --only-binary=:all: \
        --implementation cp --python-version "$version" "${platforms[@]}" --platform "manylinux2014_$machine" \
        --target "$folder/site$version" "${wheels[@]}" || die "no wheels for Python $version"
    # argv0 is what `sys.executable` will say: processes that a test starts run through this too.
    start="exec $root/usr/lib64/ld-linux-x86-64.so.2 --library-path $root/usr/lib/x86_64-linux-gnu"
    [[ $machine == x86_64 ]] || start="exec qemu-aarch64-static -0 $folder/python$version -L $root"
    [[ $machine == x86_64 ]] && start+=" --argv0 $folder/python$version"
    cat >"$folder/python$version" <<END
#!/bin/sh
PYTHONHOME=$root/usr PYTHONPATH=\${PYTHONPATH:+\$PYTHONPATH:}$folder/site$version \\
    $start $root/usr/bin/python$version "\$@"
END
    chmod +x "$folder/python$version"
    "$folder/python$version" -c "import numpy, llvmlite, safetensors" || die "Python $version does not start"
done
