# shellcheck shell=sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Sourced by the scripts that need Debian packages of another suite than the machine's. They are read
# through an apt root of their own and unpacked into folders of ours: nothing is installed and the
# machine's own apt stays as it is. The packages come from where that apt gets Debian from.

# The Debian archive that apt uses, from either form of its sources.
debian_archive() {
    apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT)' 2>/dev/null |
        awk '$2 == "Debian" && $3 == "main" && $1 !~ /security/ { sub("/$", "", $1); print $1; exit }'
}

# apt_root FOLDER SUITE...: makes an apt root with these suites and no installed package.
apt_root() {
    apt_root=$1
    shift
    apt_uri=$(debian_archive)
    [ -n "$apt_uri" ] || { echo "apt has no Debian archive" >&2; return 1; }
    mkdir -p "$apt_root/lists/partial" "$apt_root/archives/partial"
    : >"$apt_root/status"
    for apt_suite in "$@"; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $apt_uri $apt_suite main"
    done >"$apt_root/sources.list"
    # An unreachable source is an error, not only a warning with empty lists.
    in_apt_root "$apt_root" apt-get -o APT::Update::Error-Mode=any update
}

# in_apt_root FOLDER TOOL ARGUMENT...: runs apt-get or apt-cache on that root.
in_apt_root() {
    apt_root=$1 apt_tool=$2
    shift 2
    # If a suite gets no more uploads, its index becomes too old.
    "$apt_tool" -qq -o Dir::Etc::SourceList="$apt_root/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::State::Lists="$apt_root/lists" -o Dir::State::Status="$apt_root/status" \
        -o Dir::Cache="$apt_root" -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Check-Valid-Until=false -o APT::Install-Recommends=false "$@"
}

# unpack_packages APT_ROOT FOLDER PACKAGE[=VERSION]...: unpacks these packages alone. With apt_tell=yes
# it prints a line for each package.
unpack_packages() {
    apt_root=$1 apt_into=$2
    shift 2
    # The files of an interrupted run may be incomplete.
    rm -rf "$apt_root/packages"
    mkdir -p "$apt_root/packages" "$apt_into"
    (cd "$apt_root/packages" && in_apt_root "$apt_root" apt-get download "$@")
    for apt_package in "$apt_root"/packages/*.deb; do
        dpkg-deb -x "$apt_package" "$apt_into"
        [ -z "${apt_tell:-}" ] || echo "$apt_package"
    done
    rm -rf "$apt_root/packages"
}

# unpack_closure APT_ROOT FOLDER [-t SUITE] PACKAGE...: unpacks these packages with all their
# dependencies, as apt resolves them for an empty system.
unpack_closure() {
    apt_root=$1 apt_into=$2
    shift 2
    apt_names=$(in_apt_root "$apt_root" apt-get --print-uris install "$@" |
        awk '{ n = split($2, f, "_"); gsub("%3a", ":", f[2]); print f[1] "=" f[2] }')
    [ -n "$apt_names" ] || { echo "no apt source offers $*" >&2; return 1; }
    # shellcheck disable=SC2086 # names have no spaces
    unpack_packages "$apt_root" "$apt_into" $apt_names
}
