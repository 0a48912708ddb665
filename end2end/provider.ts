/** A provider that charges, on loopback: it honours keys and says what it knows of one. Its effects are the truth. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server as HttpServer } from "node:http";
import { expectStatus, type Members, type Person } from "./server.ts";

export interface Effect {
  id: string;
  key: string;
  body: string;
  /** The credential it came with. */
  authorization?: string;
}

export class Provider {
  readonly effects: Effect[] = [];
  /** Each effect is made, and nothing is answered. */
  losesReplies = false;

  private constructor(
    private readonly http: HttpServer,
    readonly url: string,
  ) {}

  static async start(): Promise<Provider> {
    const http = createServer();
    http.listen(0, "127.0.0.1");
    await once(http, "listening");
    const address = http.address();
    if (address === null || typeof address === "string") throw new Error("no port");
    const provider = new Provider(http, `http://127.0.0.1:${address.port}`);
    http.on("request", async (request, response) => {
      const [status, body] = await provider.answer(request);
      if (provider.losesReplies && request.method !== "GET") {
        request.socket.destroy();
        return;
      }
      response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
    });
    return provider;
  }

  /** Makes the effect of a key, once. */
  charge(key: string, body = "{}"): Effect {
    const known = this.effects.find((effect) => effect.key === key);
    if (known) return known;
    const effect = { id: `ch_${this.effects.length + 1}`, key, body };
    this.effects.push(effect);
    return effect;
  }

  /** What it declares under a name, for kinds. */
  declaration(name: string, kinds: string[], more: Members = {}): Members {
    return {
      name,
      title: "Payments",
      kinds,
      idempotency: { header: "Idempotency-Key", retention_s: 86_400 },
      lookup: "authoritative",
      max_in_flight_s: 0,
      fences: false,
      destination: {
        base_url: this.url,
        allow_private: ["127.0.0.1/32"],
        timeout_s: 5,
        max_reply_bytes: 4096,
        reference: "/id",
        lookup: { path: "/charges?key={key}", items: "/data", echo: "/key" },
        check: { method: "POST", path: "/charges", body: { amount: 1 }, other_body: { amount: 2 } },
      },
      ...more,
    };
  }

  /** Declares it at a desk; with a check, what it declares is proven. */
  async declare(admin: Person, name: string, kinds: string[], more: Members = {}): Promise<void> {
    const api = await admin.api();
    const data = this.declaration(name, kinds, more);
    await expectStatus(await api.post("/api/v1/providers", { data }), 201);
  }

  async prove(admin: Person, name: string): Promise<void> {
    const api = await admin.api();
    await expectStatus(await api.post(`/api/v1/providers/${name}/check`, { data: {} }), 200);
  }

  async stop(): Promise<void> {
    this.http.closeAllConnections();
    this.http.close();
    await once(this.http, "close");
  }

  private async answer(request: IncomingMessage): Promise<[number, Members]> {
    if (request.method === "GET") {
      const key = new URL(request.url ?? "/", this.url).searchParams.get("key");
      const data = this.effects.filter((effect) => effect.key === key).map(({ id, key }) => ({ id, key }));
      return [200, { data }];
    }
    let body = "";
    for await (const bytes of request) body += bytes;
    const key = String(request.headers["idempotency-key"]);
    const effect = this.charge(key, body);
    effect.authorization = request.headers.authorization;
    return effect.body === body ? [201, { id: effect.id, key }] : [422, { error: "another body" }];
  }
}
