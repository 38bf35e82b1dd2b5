"""A validating admission webhook: a pod that carries its job and asks for a GPU on which that does not fit is refused.

The pod's annotation `oometer/job` holds the job (JSON); its node selector `nvidia.com/gpu.product` names the GPU.

    python kubernetes.py 8443 tls.crt tls.key      # and a ValidatingWebhookConfiguration that points at /validate
"""

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import oometer

# The labels of NVIDIA's device plugin, and our names.
GPUS = {
    "NVIDIA-H100-80GB-HBM3": "h100-80gb",
    "NVIDIA-A100-SXM4-80GB": "a100-80gb",
    "NVIDIA-A100-SXM4-40GB": "a100-40gb",
    "Tesla-T4": "t4",
}


def review(request: dict[str, Any]) -> dict[str, Any]:
    """An AdmissionReview's answer."""
    pod = request["object"]
    job = pod["metadata"].get("annotations", {}).get("oometer/job")
    gpu = GPUS.get(pod["spec"].get("nodeSelector", {}).get("nvidia.com/gpu.product", ""))
    answer: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if job is None or gpu is None:
        return answer
    try:
        check = oometer.check(job, gpu=gpu)
    except oometer.JobError as error:
        return answer | {"warnings": [f"oometer does not know this job: {error}"]}
    return answer if check else answer | {"allowed": False, "status": {"code": 422, "message": str(check)}}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:  # noqa: N802  # the name is the library's
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": review(given["request"])}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    server = ThreadingHTTPServer(("", int(sys.argv[1])), Handler)
    if len(sys.argv) > 3:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2], sys.argv[3])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
