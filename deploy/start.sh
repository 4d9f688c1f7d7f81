# What a container starts: the service, on a lake that is made with the first start if it is a folder.
set -eu
case "$LITHIFY_LAKE" in
    s3:*) ;;
    *) [ -e "$LITHIFY_LAKE" ] || lithify init "$LITHIFY_LAKE" ;;
esac
exec lithify serve --token-file /lake/token
