/** The real server as a child process, and the people and programs that speak to it over HTTP. */
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type APIRequestContext, type APIResponse, request } from "@playwright/test";

export type Role = "viewer" | "approver" | "operator" | "admin" | "auditor";
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Members = { [name: string]: Json };

/** What the stories read of an operation; the rest of the document is in `/openapi.json`. */
export interface Operation {
  id: string;
  state: string;
  version: number;
  kind: string;
  target: string;
  consequence: string;
  risk: "low" | "medium" | "high" | "critical";
  fingerprint: string;
  short_code: string;
  outcome: { status: string; provider_reference: string | null } | null;
  conflict: { id: string } | null;
}

export interface Claim {
  id: string;
  claim_fence: number;
  fingerprint: string;
}

/** A proposal's kind, its parameters, and the members beside them. */
export interface Proposal {
  kind: string;
  params: Members;
  [member: string]: Json;
}

const BINARY = resolve(process.env.COUNTERFOIL_BIN ?? "../target/release/counterfoil");

/** The parsed body of a reply with the expected status; anything else fails the test with the reply in its message. */
export async function expectStatus<T = Members>(reply: APIResponse, ...statuses: number[]): Promise<T> {
  if (!statuses.includes(reply.status())) {
    throw new Error(`${reply.url()} answered ${reply.status()} instead of ${statuses.join(" or ")}: ${await reply.text()}`);
  }
  return (await reply.json().catch(() => ({}))) as T;
}

export class Server {
  readonly url: string;
  readonly data = mkdtempSync(join(tmpdir(), "counterfoil-e2e-"));
  readonly env: NodeJS.ProcessEnv;
  private process: ChildProcess | undefined;

  private constructor(port: number, settings: NodeJS.ProcessEnv) {
    this.url = `http://127.0.0.1:${port}`;
    this.env = {
      ...process.env,
      COUNTERFOIL_LISTEN: `127.0.0.1:${port}`,
      COUNTERFOIL_PUBLIC_URL: this.url,
      COUNTERFOIL_DATA_DIR: this.data,
      COUNTERFOIL_DATABASE_URL: `sqlite:${join(this.data, "counterfoil.db")}`,
      ...settings,
    };
  }

  /** A migrated, empty, ready server in a fresh folder. */
  static async start(settings: NodeJS.ProcessEnv = {}): Promise<Server> {
    const server = new Server(await freePort(), settings);
    await server.cli(["migrate"]);
    await server.serve();
    return server;
  }

  /** Starts the process and waits until it is ready; also after `stop`, on the same data. */
  async serve(): Promise<void> {
    const log = openSync(join(this.data, "server.log"), "a");
    const child = spawn(BINARY, ["serve"], { env: this.env, stdio: ["ignore", log, log] });
    closeSync(log);
    this.process = child;
    const deadline = Date.now() + 20_000;
    for (;;) {
      const ready = await fetch(`${this.url}/readyz`).then((reply) => reply.ok, () => false);
      if (ready) return;
      if (child.exitCode !== null) throw new Error(`the server exited with ${child.exitCode}\n${this.log()}`);
      if (Date.now() > deadline) throw new Error(`the server is not ready\n${this.log()}`);
      await sleep(50);
    }
  }

  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.kill(signal);
    await gone;
  }

  /** Stops the server and removes its folder. */
  async remove(): Promise<void> {
    await this.stop();
    rmSync(this.data, { recursive: true, force: true });
  }

  log(): string {
    return readFileSync(join(this.data, "server.log"), "utf8");
  }

  /** Runs one command of the command line beside the server and returns what it prints. */
  async cli(command: string[], stdin = ""): Promise<string> {
    const child = spawn(BINARY, command, { env: this.env, stdio: ["pipe", "pipe", "pipe"] });
    let out = "";
    let err = "";
    child.stdout.on("data", (bytes) => (out += bytes));
    child.stderr.on("data", (bytes) => (err += bytes));
    // A command that reads no input may be gone before it is offered any.
    child.stdin.on("error", () => {});
    child.stdin.end(stdin);
    const [code] = await once(child, "close");
    if (code !== 0) throw new Error(`\`counterfoil ${command.join(" ")}\` exited with ${code}: ${err}`);
    return out.trim();
  }

  /** Adds a person, with a password nobody else knows. */
  async person(name: string, role: Role, groups: string[]): Promise<Person> {
    const password = randomUUID();
    const membership = groups.flatMap((group) => ["--group", group]);
    await this.cli(["user", "add", name, "--role", role, ...membership, "--password-stdin"], `${password}\n`);
    const headers = { Origin: this.url, "Sec-Fetch-Site": "same-origin" };
    const http = await request.newContext({ baseURL: this.url, extraHTTPHeaders: headers });
    return new Person(this.url, name, role, password, http);
  }

  /** Adds an agent of a person. */
  async agent(name: string, owner: string): Promise<Agent> {
    const printed = await this.cli(["agent", "add", name, "--owner", owner]);
    const token = printed.match(/cfa_[A-Za-z0-9_-]+/)?.[0];
    if (!token) throw new Error("`agent add` printed no token");
    return new Agent(name, this.url, await bearer(this.url, token));
  }
}

/** A terminal beside a server, for commands as the README gives them. */
export class Shell {
  private readonly child: ChildProcess;
  private output = "";

  constructor(private readonly server: Server) {
    this.child = spawn("bash", ["--noprofile", "--norc"], { cwd: server.data, env: server.env, stdio: ["pipe", "pipe", "pipe"] });
    this.child.stdout?.on("data", (bytes) => (this.output += bytes));
    this.child.stderr?.on("data", (bytes) => (this.output += bytes));
  }

  /** Runs commands that name the default address and the built binary; what they print, once they are done. */
  async run(commands: string): Promise<string> {
    const here = commands.replaceAll("http://127.0.0.1:8080", this.server.url).replaceAll("target/release/counterfoil", BINARY);
    const end = `end-${randomUUID()}`;
    this.output = "";
    this.child.stdin?.write(`${here}\necho ${end}\n`);
    const printed = await this.printed(new RegExp(`^([\\s\\S]*)${end}\n`));
    return printed.slice(0, printed.indexOf(end));
  }

  /** Waits until the output matches. */
  async printed(pattern: RegExp): Promise<string> {
    const deadline = Date.now() + 60_000;
    for (;;) {
      const found = pattern.exec(this.output)?.[0];
      if (found !== undefined) return found;
      if (Date.now() > deadline) throw new Error(`no ${pattern} in:\n${this.output}`);
      await sleep(20);
    }
  }

  close(): void {
    this.child.kill();
  }
}

/** A person at the API; the same person signs in with a browser through the `signIn` fixture. */
export class Person {
  private signedIn = false;

  constructor(
    readonly url: string,
    readonly name: string,
    readonly role: Role,
    readonly password: string,
    private readonly http: APIRequestContext,
  ) {}

  /** The API under this person's session. */
  async api(): Promise<APIRequestContext> {
    if (!this.signedIn) {
      const { name, password } = this;
      await expectStatus(await this.http.post("/api/v1/session", { data: { name, password } }), 200);
      this.signedIn = true;
    }
    return this.http;
  }

  /** Votes on an operation as the API allows it, with everything its review asks to be echoed. */
  async decide(id: string, decision: "approve" | "reject", changes: Members = {}): Promise<APIResponse> {
    const api = await this.api();
    const read = await api.get(`/api/v1/operations/${id}`);
    const { operation, review_digest } = await expectStatus<{ operation: Operation; review_digest: string }>(read, 200);
    const grave = operation.risk === "high" || operation.risk === "critical";
    const data = {
      decision,
      fingerprint: operation.fingerprint,
      review_digest,
      ...(decision === "approve" && grave ? { confirm_target: operation.target } : {}),
      ...(decision === "reject" ? { reason_code: "other", reason: "not now" } : {}),
      ...changes,
    };
    return api.post(`/api/v1/operations/${id}/decisions`, { data });
  }
}

export class Agent {
  constructor(
    readonly name: string,
    private readonly url: string,
    private readonly http: APIRequestContext,
  ) {}

  /** Starts a run, under its own credential. */
  async run(members: Members = {}): Promise<Run> {
    const reply = await this.http.post("/api/v1/runs", { data: { label: "story", ...members } });
    const { run, token } = await expectStatus<{ run: { id: string }; token: string }>(reply, 201);
    return new Run(run.id, await bearer(this.url, token));
  }
}

export class Run {
  constructor(
    readonly id: string,
    readonly http: APIRequestContext,
  ) {}

  /** Proposes and expects a new operation. */
  async propose(proposal: Proposal, key: string = randomUUID()): Promise<Operation> {
    const reply = await this.tryPropose(proposal, key);
    return (await expectStatus<{ operation: Operation }>(reply, 201)).operation;
  }

  tryPropose(proposal: Proposal, key: string = randomUUID()): Promise<APIResponse> {
    return this.http.post("/api/v1/operations", { data: proposal, headers: { "Idempotency-Key": key } });
  }

  async operation(id: string): Promise<Operation> {
    const reply = await this.http.get(`/api/v1/operations/${id}`);
    return (await expectStatus<{ operation: Operation }>(reply, 200)).operation;
  }

  /** Spends the approval of an operation. */
  async claim({ id, fingerprint }: Operation): Promise<Claim> {
    const reply = await this.http.post(`/api/v1/operations/${id}/claim`, { data: { fingerprint } });
    return (await expectStatus<{ claim: Claim }>(reply, 200)).claim;
  }

  async sent(id: string, claim: Claim): Promise<void> {
    const data = { claim_id: claim.id, claim_fence: claim.claim_fence, fingerprint: claim.fingerprint };
    await expectStatus(await this.http.post(`/api/v1/operations/${id}/sent`, { data }), 200);
  }

  async outcome(id: string, claim: Claim, members: Members): Promise<Operation> {
    const data = { claim_id: claim.id, claim_fence: claim.claim_fence, ...members };
    const reply = await this.http.post(`/api/v1/operations/${id}/outcome`, { data });
    return (await expectStatus<{ operation: Operation }>(reply, 200)).operation;
  }

  /** Claims, sends and reports in one go. */
  async carryOut(operation: Operation, members: Members): Promise<Operation> {
    const claim = await this.claim(operation);
    await this.sent(operation.id, claim);
    return this.outcome(operation.id, claim, members);
  }
}

function bearer(url: string, token: string): Promise<APIRequestContext> {
  return request.newContext({ baseURL: url, extraHTTPHeaders: { Authorization: `Bearer ${token}` } });
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const address = probe.address();
  probe.close();
  await once(probe, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
