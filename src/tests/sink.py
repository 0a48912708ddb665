"""A store that writes under the newest fencing token alone: sink.py DESK TOKEN, the token of an executor."""
import json, sys, threading, urllib.error, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DESK, TOKEN = sys.argv[1:]
STORED, ONE_AT_A_TIME = {}, threading.Lock()

def check_fence(resource, fencing_token):
    """Asks the desk; its refusal, or no answer, means that nothing is written."""
    question = json.dumps({"resource": resource, "fencing_token": fencing_token}).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    try:
        request = urllib.request.Request(f"{DESK}/api/v1/fences/check", question, headers)
        return 200, json.load(urllib.request.urlopen(request, timeout=5))
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)
    except OSError:
        return 503, {"code": "unavailable"}

class Sink(BaseHTTPRequestHandler):
    def do_PUT(self):
        resource, body = self.path[1:], self.rfile.read(int(self.headers["Content-Length"]))
        with ONE_AT_A_TIME:  # Nobody writes between the check and the write.
            status, answer = check_fence(resource, int(self.headers["X-Fencing-Token"]))
            if status == 200:
                STORED[resource] = body
        self.reply(status, json.dumps(answer).encode())

    def do_GET(self):
        self.reply(200, STORED.get(self.path[1:], b""))

    def reply(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

with ThreadingHTTPServer(("127.0.0.1", 0), Sink) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
