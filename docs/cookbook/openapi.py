import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from harborage import Agent
from harborage.tools import Bearer, OpenAPI, secret

SHOP = """
openapi: 3.1.0
paths:
  /orders/{order}:
    get:
      operationId: getOrder
      summary: Find an order.
      parameters: [{in: path, name: order, schema: {type: string}}]
    delete:
      operationId: deleteOrder
      summary: Delete an order.
      parameters: [{in: path, name: order, schema: {type: string}}]
"""


class Shop(BaseHTTPRequestHandler):  # stands for the product whose document you have
    def do_GET(self) -> None:
        token = self.headers["Authorization"]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"order": self.path[8:], "state": "on its way", "token": token}).encode())

    def log_message(self, *_: object) -> None:
        pass


server = HTTPServer(("127.0.0.1", 0), Shop)
Thread(target=server.serve_forever, daemon=True).start()
Path("shop.yaml").write_text(SHOP)
os.environ["SHOP_TOKEN"] = "a-secret-of-the-shop"

shop = OpenAPI(
    "shop.yaml",
    base_url=f"http://127.0.0.1:{server.server_port}",
    auth=Bearer(secret("env:SHOP_TOKEN")),
    select=["getOrder", "DELETE /orders/*"],
    approve=["delete*"],
)
support = Agent("support", model="openai:gpt-5", tools=[shop])
result = support.run_sync("Where is order 7?")
print(result.output)
print("a-secret-of-the-shop" in str(result.messages))
server.shutdown()
server.server_close()
# > It is on its way.
# > False
