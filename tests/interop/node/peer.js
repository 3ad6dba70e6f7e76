// Operations of nats.js. Each line of input is a JSON request, and each line of output its reply.
// tests/interop/clients.py lists the operations.
import { createInterface } from "node:readline";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { Objm } from "@nats-io/obj";
import { Svcm } from "@nats-io/services";
import { connect, headers } from "@nats-io/transport-node";

const nc = await connect({ servers: process.argv[2] });
const js = jetstream(nc);
const jsm = await jetstreamManager(nc);
const kvm = new Kvm(js);
const objm = new Objm(js);
const svcm = new Svcm(nc);
const services = new Map();

const data = (r) => Buffer.from(r.value ?? "", "base64");
const text = (bytes) => Buffer.from(bytes ?? []).toString("base64");
const entry = (e) => ({
  key: e.key,
  value: text(e.value),
  revision: e.revision,
  operation: e.operation,
});
const grouped = (h) => Object.fromEntries([...(h?.keys() ?? [])].map((k) => [k, h.values(k)]));
const headersOf = (pairs) => {
  const h = headers();
  for (const [name, value] of pairs) h.append(name, value);
  return h;
};
const info = (o) => ({
  name: o.name,
  description: o.description ?? "",
  headers: grouped(o.headers),
  metadata: o.metadata ?? {},
  size: o.size,
  chunks: o.chunks,
  digest: o.digest ?? "",
  deleted: Boolean(o.deleted),
  link: o.options?.link ? [o.options.link.bucket, o.options.link.name ?? ""] : null,
});
const all = async (iterator) => {
  const found = [];
  for await (const each of iterator) found.push(each);
  return found;
};
const collected = (meta) => {
  const h = headers();
  for (const [name, values] of Object.entries(meta)) for (const v of values) h.append(name, v);
  return h;
};

const operations = {
  // Buckets of keys

  kv_create: (r) =>
    kvm.create(r.bucket, {
      history: r.history,
      description: r.description,
      storage: "memory",
      ...(r.marker_ttl ? { markerTTL: r.marker_ttl * 1000 } : {}),
    }).then(() => ({})),
  kv_put: async (r) => ({ revision: await (await kvm.open(r.bucket)).put(r.key, data(r)) }),
  kv_insert: async (r) => ({
    revision: await (await kvm.open(r.bucket)).create(r.key, data(r), r.ttl ? `${r.ttl}s` : undefined),
  }),
  kv_update: async (r) => ({
    revision: await (await kvm.open(r.bucket)).update(r.key, data(r), r.last),
  }),
  kv_delete: async (r) => (await kvm.open(r.bucket)).delete(r.key),
  kv_purge: async (r) =>
    (await kvm.open(r.bucket)).purge(r.key, r.ttl ? { ttl: `${r.ttl}s` } : {}),
  kv_get: async (r) => {
    const found = await (await kvm.open(r.bucket)).get(r.key);
    if (!found || found.operation !== "PUT") throw new Error("not found");
    return { entry: entry(found) };
  },
  kv_history: async (r) => ({
    entries: (await all(await (await kvm.open(r.bucket)).history({ key: r.key }))).map(entry),
  }),
  kv_keys: async (r) => ({ keys: await all(await (await kvm.open(r.bucket)).keys()) }),
  kv_status: async (r) => {
    const status = await (await kvm.open(r.bucket)).status();
    return { history: status.history, values: status.values };
  },

  // Object stores

  obj_create: async (r) => {
    await objm.create(r.bucket, {
      description: r.description,
      metadata: r.metadata,
      storage: "memory",
    });
    return {};
  },
  obj_put: async (r) => {
    const meta = {
      name: r.name,
      description: r.description,
      metadata: r.metadata,
      options: { max_chunk_size: r.chunk_size },
    };
    if (Object.keys(r.headers).length) meta.headers = collected(r.headers);
    await (await objm.open(r.bucket)).putBlob(meta, data(r));
  },
  obj_get: async (r) => {
    const found = await (await objm.open(r.bucket)).getBlob(r.name);
    if (!found) throw new Error("not found");
    return { value: text(found) };
  },
  obj_info: async (r) => {
    const found = await (await objm.open(r.bucket)).info(r.name);
    if (!found || found.deleted) throw new Error("not found");
    return { info: info(found) };
  },
  obj_list: async (r) => ({
    names: (await (await objm.open(r.bucket)).list()).map((each) => each.name),
  }),
  obj_update: async (r) => {
    await (await objm.open(r.bucket)).update(r.name, {
      name: r.new_name ?? r.name,
      description: r.description,
    });
  },
  obj_delete: async (r) => {
    await (await objm.open(r.bucket)).delete(r.name);
  },
  obj_link: async (r) => {
    const store = await objm.open(r.bucket);
    await store.link(r.name, await store.info(r.target));
  },
  obj_link_store: async (r) => {
    await (await objm.open(r.bucket)).linkStore(r.name, await objm.open(r.target));
  },

  // Services

  svc_start: async (r) => {
    const service = await svcm.add({
      name: r.name,
      version: "1.2.3",
      description: r.description,
      metadata: r.metadata,
    });
    service.addGroup(r.name).addEndpoint("upper", {
      metadata: { of: "endpoint" },
      handler: (error, msg) => {
        if (error) return;
        if (msg.string() === "fail") msg.respondError(422, "bad input");
        else msg.respond(msg.string().toUpperCase(), { headers: msg.headers });
      },
    });
    services.set(r.name, service);
    await nc.flush();
  },
  svc_stop: async (r) => {
    await services.get(r.name).stop();
  },
  svc_call: async (r) => {
    const reply = await nc.request(r.subject, data(r), { timeout: 10000 });
    return {
      value: text(reply.data),
      code: reply.headers?.get("Nats-Service-Error-Code") ?? "",
      description: reply.headers?.get("Nats-Service-Error") ?? "",
    };
  },
  svc_verbs: async (r) => {
    const client = svcm.client({ strategy: "timer", maxWait: 500 });
    const one = async (asked) => (await all(await asked))[0];
    return {
      PING: await one(client.ping(r.name)),
      INFO: await one(client.info(r.name)),
      STATS: await one(client.stats(r.name)),
    };
  },

  // Messages

  publish: async (r) => ({
    seq: (await js.publish(r.subject, data(r), { headers: headersOf(r.headers) })).seq,
  }),
  schedule: async (r) => {
    const schedule = { specification: r.schedule, target: r.target };
    const ack = await js.publish(r.subject, data(r), { schedule });
    return { seq: ack.seq };
  },
  get_msg: async (r) => {
    const found = await jsm.streams.getMessage(r.stream, { seq: r.seq });
    return { subject: found.subject, value: text(found.data), headers: grouped(found.header) };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let reply;
  try {
    reply = (await operations[request.op](request)) ?? {};
  } catch (error) {
    reply = { error: String(error) };
  }
  process.stdout.write(JSON.stringify(reply) + "\n");
}
await nc.close();
