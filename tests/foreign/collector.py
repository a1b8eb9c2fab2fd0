"""A collector of OpenTelemetry traces that decodes OTLP over HTTP with the official messages.

stdout: {"port"} first, then a line for each request: {"headers", "resource", "scope", "spans"}, with ids in hexadecimal
and attributes as objects.
"""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


def tell(message):
    print(json.dumps(message), flush=True)


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def event(event):
    return {"name": event.name, "at": event.time_unix_nano, "attributes": attributes(event.attributes)}


def span(span):
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": Span.SpanKind.Name(span.kind),
        "flags": span.flags,
        "began": span.start_time_unix_nano,
        "ended": span.end_time_unix_nano,
        "attributes": attributes(span.attributes),
        "events": [event(each) for each in span.events],
        "status": Status.StatusCode.Name(span.status.code),
    }


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path != "/v1/traces" or self.headers["content-type"] != "application/x-protobuf":
            tell({"refused": [self.path, self.headers["content-type"]]})
            return self.answer(404, b"")
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                tell(
                    {
                        "headers": {name.lower(): value for name, value in self.headers.items()},
                        "resource": attributes(resource.resource.attributes),
                        "scope": scope.scope.name,
                        "spans": [span(each) for each in scope.spans],
                    }
                )
        self.answer(200, ExportTraceServiceResponse().SerializeToString())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Collector)
tell({"port": server.server_port})
server.serve_forever()
