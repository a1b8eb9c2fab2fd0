#!/usr/bin/env bash
# Builds a container image of the server, without an image registry and without Docker: Debian's packages, the binary, and
# the models if they are to be a layer. Needs the Debian packages mmdebstrap and buildah, and root or user namespaces.
#
# usage: contrib/container/build.sh [--binary FILE] [--models FOLDER] [--tag NAME] [--out FILE.tar]
#   --binary   the program; target/release/undertone by default
#   --models   a folder of `undertone models unpack`; without it the image expects one at /usr/share/undertone/models
#   --tag      the image's name; undertone:latest by default
#   --out      writes the image as an archive for `podman load` or `docker load`
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
binary=$here/target/release/undertone models='' tag=undertone:latest out=''
while [ $# -gt 0 ]; do
    case $1 in
        --binary) binary=$2 ;;
        --models) models=$2 ;;
        --tag) tag=$2 ;;
        --out) out=$2 ;;
        *)
            sed -n '5,9s/^# //p' "$0" >&2
            exit 2
            ;;
    esac
    shift 2
done
for program in mmdebstrap buildah; do
    command -v "$program" >/dev/null || { echo "$program is missing: apt-get install $program" >&2; exit 1; }
done
[ -x "$binary" ] || { echo "there is no $binary: cargo build --release --locked" >&2; exit 1; }
[ -z "$models" ] || [ -f "$models/files.toml" ] || { echo "there is no $models/files.toml: see --models" >&2; exit 1; }

# The binary was linked with this system's libc, so the image has the same release of Debian.
release=${RELEASE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
work=$(mktemp -d)
container=''
cleanup() {
    [ -z "$container" ] || buildah rm "$container" >/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

# espeak-ng spells for the voice, ca-certificates for services elsewhere, tzdata for get_time.
mmdebstrap --variant=essential --include=ca-certificates,espeak-ng,libstdc++6,tzdata \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$release" "$work/base.tar" ${MIRROR:+"$MIRROR"}

container=$(buildah from --format docker scratch)
buildah add --quiet "$container" "$work/base.tar" / >/dev/null

mkdir -p "$work/files/etc/undertone" "$work/files/var/lib/undertone" "$work/files/usr/share/undertone/models" \
    "$work/files/usr/local/bin"
install -m 0755 "$binary" "$work/files/usr/local/bin/undertone"
strip --strip-debug "$work/files/usr/local/bin/undertone" 2>/dev/null || true
cp -r "$here/tools" "$work/files/etc/undertone/"
install -D -m 0644 -t "$work/files/usr/share/doc/undertone" "$here"/LICENSE-* "$here/THIRD-PARTY.md"
# Whoever the container runs as may write here, and nowhere else.
chmod 1777 "$work/files/var/lib/undertone"
buildah copy --quiet "$container" "$work/files" / >/dev/null
if [ -n "$models" ]; then
    buildah copy --quiet --chmod 0755 "$container" "$models" /usr/share/undertone/models >/dev/null
    # A conversation tries the image out, and leaves the audio of the fixed phrases: without it, a first start takes some
    # seconds longer. A new volume begins with what the image has in its place, and any user may add to it.
    # shellcheck disable=SC2016  # expanded in the container
    buildah run --isolation chroot "$container" -- env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp/try \
        XDG_CACHE_HOME=/var/lib/undertone/cache UNDERTONE_MODELS=/usr/share/undertone/models sh -ec '
            cd /etc/undertone && mkdir /tmp/try
            undertone say "What time is it in Tokyo?" --out /tmp/try/question.wav
            undertone ask /tmp/try/question.wav --out /tmp/try/answer.wav
            rm -r /tmp/try
            find /var/lib/undertone/cache -type d -exec chmod 0777 {} +
            find /var/lib/undertone/cache -type f -exec chmod 0644 {} +'
fi

buildah config \
    --user 10001:10001 \
    --workingdir /etc/undertone \
    --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --env HOME=/var/lib/undertone \
    --env XDG_STATE_HOME=/var/lib \
    --env XDG_CACHE_HOME=/var/lib/undertone/cache \
    --env UNDERTONE_MODELS=/usr/share/undertone/models \
    --env UNDERTONE_SERVER__HOST=0.0.0.0 \
    --env UNDERTONE_PLAYGROUND__DEMONSTRATION=false \
    --env UNDERTONE_LOG__FORMAT=json \
    --volume /var/lib/undertone \
    --port 8787/tcp --port 8787/udp \
    --stop-signal SIGTERM \
    --healthcheck 'CMD undertone doctor --ready' \
    --healthcheck-interval 10s --healthcheck-timeout 5s --healthcheck-start-period 30s \
    --entrypoint '["/usr/local/bin/undertone"]' --cmd serve \
    --label org.opencontainers.image.title=undertone \
    --label org.opencontainers.image.licenses='MIT OR Apache-2.0' \
    "$container"
# Only Docker's format has health checks.
image=$(buildah commit --quiet --format docker "$container" "$tag")
echo "built $tag ($image)"
if [ -n "$out" ]; then
    rm -f "$out" # it cannot be added to
    buildah push --quiet "$tag" "docker-archive:$out:$tag"
    echo "wrote $out"
fi
