// What a program in JavaScript does with one cluster, by @kubernetes/client-node:
// list, watch, informer, exec. NAMESPACE and KUBECONFIG say where.
import * as k8s from '@kubernetes/client-node';
import { PassThrough, Readable } from 'node:stream';

const namespace = process.env.NAMESPACE;
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);

function check(ok, what) {
    if (!ok) throw new Error(what);
}

async function until(what, condition) {
    const end = Date.now() + 60000;
    for (;;) {
        const value = await condition();
        if (value) return value;
        if (Date.now() > end) throw new Error(`${what}: not within a minute`);
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
}

const running = (pod) => pod.status?.phase === 'Running' && !pod.metadata.deletionTimestamp;

// An informer from before the first Pod to after the last one.
const events = { add: 0, update: 0, delete: 0, errors: [] };
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/pods`, () => core.listNamespacedPod({ namespace }));
for (const name of ['add', 'update', 'delete']) informer.on(name, () => events[name]++);
informer.on('error', (err) => {
    events.errors.push(String(err));
    setTimeout(() => informer.start(), 1000);
});
await informer.start();

// A watch of its own, from the resourceVersion of a list.
const empty = await core.listNamespacedPod({ namespace });
check(Array.isArray(empty.items) && empty.items.length === 0, 'the first list is not an empty list');
const watched = [];
const controller = await new k8s.Watch(config).watch(
    `/api/v1/namespaces/${namespace}/pods`,
    { resourceVersion: empty.metadata.resourceVersion, allowWatchBookmarks: true },
    (type, object) => watched.push([type, object.metadata?.name]),
    () => {},
);

await apps.createNamespacedDeployment({
    namespace,
    body: {
        metadata: { name: 'web' },
        spec: {
            replicas: 4,
            selector: { matchLabels: { app: 'web' } },
            template: {
                metadata: { labels: { app: 'web' } },
                spec: { containers: [{ name: 'web', image: 'registry.example.com/web:1' }] },
            },
        },
    },
});
await until('four Pods run in the informer', () => informer.list().filter(running).length === 4);
console.log('ok informer', informer.list().length);

// The list in pages of one is the list.
const names = [];
for (let token; ; ) {
    const page = await core.listNamespacedPod({ namespace, limit: 1, labelSelector: 'app=web', _continue: token });
    check(page.items.length <= 1, `a page of ${page.items.length}`);
    names.push(...page.items.map((pod) => pod.metadata.name));
    token = page.metadata._continue;
    if (!token) break;
}
const whole = await core.listNamespacedPod({ namespace, fieldSelector: 'status.phase=Running' });
check(names.length === 4 && whole.items.length === 4, `pages hold ${names}, the list ${whole.items.length}`);
check(String(names) === String(whole.items.map((pod) => pod.metadata.name)), 'pages and list differ');
check(whole.items[0].metadata.creationTimestamp instanceof Date, 'a time is not a Date');
const added = new Set(watched.filter(([type]) => type === 'ADDED').map(([, name]) => name));
check(names.every((name) => added.has(name)), `watched ${JSON.stringify(watched)}, listed ${names}`);
console.log('ok list', names.length, 'watch', watched.length);

// exec, over WebSocket, with input, output and the exit code.
for (const name of names) {
    const out = new PassThrough();
    let text = '';
    out.on('data', (chunk) => (text += chunk));
    const status = await new Promise((resolve, reject) => {
        new k8s.Exec(config)
            .exec(namespace, name, 'web', ['sh', '-c', 'echo "$0"; exit 3', 'hello'], out, new PassThrough(), null, false, resolve)
            .catch(reject);
    });
    await until('the output of exec', () => text === 'hello\n');
    check(status.status === 'Failure' && status.details.causes[0].message === '3', `exec ended with ${JSON.stringify(status)}`);
}
const echo = new PassThrough();
let echoed = '';
echo.on('data', (chunk) => (echoed += chunk));
const input = Readable.from(['one\ntwo\n']);
await new k8s.Exec(config).exec(namespace, names[0], 'web', ['head', '-n', '2'], echo, null, input, false);
await until('what was typed', () => echoed === 'one\ntwo\n');
console.log('ok exec', names.length);

const log = new PassThrough();
let lines = '';
log.on('data', (chunk) => (lines += chunk));
await new k8s.Log(config).log(namespace, names[0], 'web', log, { tailLines: 1 });
await until('a line of log', () => lines.length > 0);
console.log('ok log');

// Errors are Status objects with a code.
await core.readNamespacedPod({ namespace, name: 'none' }).then(
    () => check(false, 'a Pod that is not there was read'),
    (err) => check(err.code === 404 && JSON.parse(err.body).reason === 'NotFound', `reading no Pod: ${err}`),
);

await core.patchNamespacedPod(
    { namespace, name: names[0], body: [{ op: 'add', path: '/metadata/labels/seen', value: 'yes' }] },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.JsonPatch),
);
await until('the label in the informer', () => informer.get(names[0], namespace)?.metadata.labels.seen === 'yes');
await apps.deleteNamespacedDeployment({ namespace, name: 'web' });
await until('the informer to be empty', () => informer.list().length === 0);
check(events.delete >= 4, `the informer saw ${JSON.stringify(events)}`);
check(events.errors.length === 0, `the informer failed: ${events.errors}`);
console.log('ok deletion');
controller.abort();
await informer.stop();
console.log('PASSED');
process.exit(0);
