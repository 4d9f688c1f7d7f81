# A service for one lake:
#   docker build -t lithify .
#   docker run -p 8080:8080 -v lithify-lake:/lake lithify
# The first token lies in /lake/token, which only the container's user can read. LITHIFY_* are settings; with AWS_* and
# LITHIFY_LAKE=s3://bucket/prefix the lake lies in a bucket, and has to be there (`lithify init`).

FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY --from=build /wheels/*.whl /wheels/
COPY requirements.lock /wheels/
# The versions that were tested; Java for Spark comes as a wheel.
RUN pip install --no-cache-dir --constraint /wheels/requirements.lock "$(ls /wheels/*.whl)[all,java]" \
    && rm -rf /wheels \
    && useradd --system --create-home --uid 10001 lithify \
    && install --directory --owner lithify --mode 0750 /lake
USER lithify
ENV LITHIFY_LAKE=/lake/data LITHIFY_HOST=0.0.0.0 LITHIFY_LOG_FORMAT=json
VOLUME /lake
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health/ready', timeout=2)"]
STOPSIGNAL SIGTERM
COPY deploy/start.sh /usr/local/bin/lithify-start
CMD ["sh", "/usr/local/bin/lithify-start"]
