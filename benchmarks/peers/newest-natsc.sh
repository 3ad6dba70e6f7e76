#!/bin/sh
# Unpacks the newest nats.c that Debian has into DIRECTORY, with apt, and installs nothing.
#
#   newest-natsc.sh DIRECTORY
#
# The version in a stable release is years old, and has no asynchronous pull.
set -eu
directory=$1
cd "$(mkdir -p "$directory" && cd "$directory" && pwd)"
sources=/etc/apt/sources.list.d/debian.sources
uri=$(sed -n 's/^URIs: *//p' "$sources" | head -1)
key=$(sed -n 's/^Signed-By: *//p' "$sources" | head -1)
mkdir -p apt/lists/partial apt/cache/archives/partial
echo "deb [signed-by=$key] $uri sid main" >apt/sources.list
cat >apt/apt.conf <<END
Dir::Etc::SourceList "$PWD/apt/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$PWD/apt/lists";
Dir::Cache "$PWD/apt/cache";
APT::Sandbox::User "root";
END
apt-get -qq -c apt/apt.conf update
apt-get -qq -c apt/apt.conf download libnats-dev
dpkg-deb -x libnats-dev_*.deb .
# Take the run-time dependencies of the archive from this system.
find usr/lib -name libnats_static.a -exec ln -sf {} . \;
rm -rf apt libnats-dev_*.deb
