// The JavaScript SDK against the server that E2B_* name.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import {
  ALL_TRAFFIC, AuthenticationError, CommandExitError, FileType, FilesystemEventType, InvalidArgumentError, NotFoundError, Sandbox,
  SandboxError, Secret, Template, TimeoutError, Volume, VolumeNotFoundError, VolumePathNotFoundError, waitForPort,
} from 'e2b'
import { report, seen } from './calls.mjs'

const LONG_MS = 600_000
const BOUND_MS = 120_000
const unique = (word) => `${word}-${randomUUID().slice(0, 8)}`
after(report)

async function until(fact) {
  const deadline = Date.now() + BOUND_MS
  for (;;) {
    const answer = await fact()
    if (answer) return answer
    assert.ok(Date.now() < deadline, 'it never became so')
    await new Promise((done) => setTimeout(done, 100))
  }
}

async function make(t, ...args) {
  const options = typeof args.at(-1) === 'object' ? args.pop() : {}
  const sandbox = await Sandbox.create(...args, { timeoutMs: LONG_MS, ...options })
  seen('Commands', sandbox.commands)
  seen('Pty', sandbox.pty)
  seen('Filesystem', sandbox.files)
  t.after(() => sandbox.kill())
  return sandbox
}

const started = async (sandbox, line, options) =>
  seen('CommandHandle', await sandbox.commands.run(line, { background: true, ...options }))

const gathered = async (stream) => {
  const pieces = []
  for await (const piece of stream) pieces.push(piece)
  return Buffer.concat(pieces).toString()
}

test('a command gives output, exit code, user, directory and environment', async (t) => {
  const sandbox = await make(t, { envs: { WORD: 'inside' } })
  const told = []
  const ran = await sandbox.commands.run('echo "$(whoami) $PWD $WORD $MORE"; echo err >&2', {
    user: 'root', cwd: '/tmp', envs: { MORE: 'größe' }, onStdout: (text) => told.push(text),
  })
  assert.deepEqual([ran.stdout, ran.stderr, ran.exitCode], ['root /tmp inside größe\n', 'err\n', 0])
  assert.equal(told.join(''), ran.stdout)
  await assert.rejects(sandbox.commands.run('echo so far; exit 7'), (error) =>
    error instanceof CommandExitError && error.exitCode === 7 && error.stdout === 'so far\n')
  await assert.rejects(sandbox.commands.run('true', { cwd: '/no/such/place' }), InvalidArgumentError)
  await assert.rejects(sandbox.commands.run('sleep 1000', { timeoutMs: 500 }), TimeoutError)
})

test('background commands take input, are listed, joined and killed', async (t) => {
  const sandbox = await make(t)
  const cat = await started(sandbox, 'cat', { stdin: true })
  await sandbox.commands.sendStdin(cat.pid, 'one\n')
  await cat.sendStdin('two\n')
  await cat.closeStdin()
  assert.equal((await cat.wait()).stdout, 'one\ntwo\n')
  const other = await started(sandbox, 'cat', { stdin: true })
  await sandbox.commands.closeStdin(other.pid)
  assert.equal((await other.wait()).exitCode, 0)

  const late = await started(sandbox, 'until [ -e /tmp/go ]; do sleep 0.1; done; echo late')
  await late.disconnect()
  assert.ok((await sandbox.commands.list()).some((one) => one.pid === late.pid))
  const joined = await sandbox.commands.connect(late.pid)
  await sandbox.files.write('/tmp/go', '')
  assert.equal((await joined.wait()).stdout, 'late\n')

  const sleeper = await started(sandbox, 'sleep 1000')
  assert.ok(await sleeper.kill())
  await assert.rejects(sleeper.wait(), CommandExitError)
  const second = await started(sandbox, 'sleep 1000')
  assert.ok(await sandbox.commands.kill(second.pid))
})

test('a terminal talks, is resized, joined and killed', async (t) => {
  const sandbox = await make(t)
  let shown = ''
  const decoder = new TextDecoder()
  const onData = (data) => { shown += decoder.decode(data) }
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData })
  await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 40 })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; echo $((6*7))th\n'))
  await until(() => shown.includes('40 100') && shown.includes('42th'))
  const joined = await sandbox.pty.connect(terminal.pid, { onData: () => {} })
  assert.equal(joined.pid, terminal.pid)
  assert.ok(await sandbox.pty.kill(terminal.pid))
  await assert.rejects(terminal.wait(), CommandExitError)
})

test('files are written, read, listed, renamed, watched and removed', async (t) => {
  const { files } = await make(t)
  await files.write('/tmp/deep/ä b.txt', 'größe')
  assert.equal(await files.read('/tmp/deep/ä b.txt'), 'größe')
  assert.equal(Buffer.from(await files.read('/tmp/deep/ä b.txt', { format: 'bytes' })).toString(), 'größe')
  assert.equal(await (await files.read('/tmp/deep/ä b.txt', { format: 'blob' })).text(), 'größe')
  assert.equal(await gathered(await files.read('/tmp/deep/ä b.txt', { format: 'stream' })), 'größe')
  const raw = Buffer.alloc(1_000_000, 'abc')
  await files.write('/tmp/raw', raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.length))
  assert.equal(Buffer.compare(Buffer.from(await files.read('/tmp/raw', { format: 'bytes' })), raw), 0)
  const written = await files.writeFiles([{ path: '/tmp/many/1', data: '1' }, { path: '/tmp/many/2', data: '2' }])
  assert.deepEqual(written.map((one) => one.path), ['/tmp/many/1', '/tmp/many/2'])

  assert.ok(await files.makeDir('/tmp/tree/a'))
  assert.ok(!(await files.makeDir('/tmp/tree/a')))
  const told = []
  const watch = seen('WatchHandle', await files.watchDir('/tmp/tree', (event) => { told.push(event) }))
  await files.write('/tmp/tree/one', '1')
  await until(() => told.some((one) => one.name === 'one' && one.type === FilesystemEventType.WRITE))
  await watch.stop()
  assert.deepEqual((await files.list('/tmp/tree', { depth: 2 })).map((one) => one.path), ['/tmp/tree/a', '/tmp/tree/one'])
  const info = await files.getInfo('/tmp/tree/one')
  assert.deepEqual([info.type, info.size, info.owner], [FileType.FILE, 1, 'user'])
  assert.equal((await files.rename('/tmp/tree/one', '/tmp/tree/two')).path, '/tmp/tree/two')
  assert.ok(await files.exists('/tmp/tree/two'))
  await files.remove('/tmp/tree')
  assert.ok(!(await files.exists('/tmp/tree')))
  await assert.rejects(files.read('/tmp/nothing'), NotFoundError)
})

test('signed urls read and write a file', async (t) => {
  const sandbox = await make(t)
  const form = new FormData()
  form.append('file', new Blob(['by url']), 'signed.txt')
  const up = await fetch(await sandbox.uploadUrl('/tmp/signed.txt', { useSignatureExpiration: 1000 }), { method: 'POST', body: form })
  assert.equal(up.status, 200)
  const down = await fetch(await sandbox.downloadUrl('/tmp/signed.txt', { useSignatureExpiration: 1000 }))
  assert.equal(await down.text(), 'by url')
})

test('a sandbox has what it was made with until it is killed', async (t) => {
  const mark = randomUUID()
  const sandbox = await make(t, { metadata: { mark } })
  const info = await sandbox.getInfo()
  assert.deepEqual([info.sandboxId, info.state, info.metadata], [sandbox.sandboxId, 'running', { mark }])
  assert.ok((await sandbox.isRunning()) && sandbox.getHost(3000).startsWith(`3000-${sandbox.sandboxId}.`))
  const other = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: LONG_MS })
  assert.equal((await other.commands.run('echo same')).stdout, 'same\n')
  const pages = Sandbox.list({ query: { metadata: { mark } }, limit: 1 })
  assert.deepEqual((await pages.nextItems()).map((one) => one.sandboxId), [sandbox.sandboxId])
  await sandbox.setTimeout(LONG_MS * 2)
  assert.ok((await Sandbox.getInfo(sandbox.sandboxId)).endAt > info.endAt)
  const metrics = await until(async () => (await sandbox.getMetrics()).at(-1))
  assert.ok(metrics.memTotal > metrics.memUsed)
  assert.ok(await sandbox.kill())
  assert.ok(!(await sandbox.isRunning()))
  assert.ok(!(await Sandbox.kill(sandbox.sandboxId)))
  await assert.rejects(Sandbox.getInfo(sandbox.sandboxId), NotFoundError)
})

test('a sandbox killed during a command ends it with an error', async (t) => {
  const sandbox = await make(t)
  const running = await started(sandbox, 'sleep 1000', { timeoutMs: 0 })
  await sandbox.kill()
  await assert.rejects(running.wait(), SandboxError)
})

test('pause keeps memory, or the disk alone', async (t) => {
  const sandbox = await make(t)
  const running = await started(sandbox, 'exec sleep 5000', { timeoutMs: 0 })
  running.wait().catch(() => {})
  assert.ok(await sandbox.pause())
  assert.equal((await sandbox.getInfo()).state, 'paused')
  const again = await sandbox.connect({ timeoutMs: LONG_MS })
  assert.ok((await again.commands.list()).some((one) => one.pid === running.pid))
  assert.ok(await Sandbox.betaPause(sandbox.sandboxId))
  const woken = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: LONG_MS })
  await woken.updateNetwork({ allowInternetAccess: false })
  assert.equal((await woken.getInfo()).allowInternetAccess, false)
})

test('a network is told as given', async (t) => {
  const network = { allowOut: ['api.example.com'], denyOut: [ALL_TRAFFIC] }
  const sandbox = await make(t, { network })
  const told = (await sandbox.getInfo()).network
  assert.deepEqual([told.allowOut, told.denyOut], [network.allowOut, network.denyOut])
})

test('a secret is made, changed, listed and destroyed', async () => {
  const made = await Secret.create('js-key', 'one', { metadata: { a: 'b' } })
  assert.equal((await Secret.update('js-key', 'two')).currentVersion, 2)
  assert.deepEqual((await Secret.getInfo(made.secretId)).metadata, { a: 'b' })
  assert.ok((await Secret.list().nextItems()).some((one) => one.secretId === made.secretId))
  assert.ok(await Secret.exists('js-key'))
  assert.ok(await Secret.destroy('js-key'))
  assert.ok(!(await Secret.exists('js-key')))
})

test('forks and snapshots go on from one state', async (t) => {
  const sandbox = await make(t)
  await sandbox.files.write('/home/user/state', 'kept')
  const [copy] = await sandbox.fork({ timeoutMs: LONG_MS, count: 1 })
  t.after(() => copy.kill())
  await copy.files.write('/home/user/state', 'changed')
  assert.equal(await sandbox.files.read('/home/user/state'), 'kept')
  const snapshot = await sandbox.createSnapshot()
  const found = await sandbox.listSnapshots().nextItems()
  assert.ok(found.some((one) => one.snapshotId === snapshot.snapshotId))
  const from = await make(t, snapshot.snapshotId)
  assert.equal(await from.files.read('/home/user/state'), 'kept')
  await from.kill()
  assert.ok(await Sandbox.deleteSnapshot(snapshot.snapshotId))
})

test('git works through the SDK', async (t) => {
  const { git, files } = await make(t)
  await git.init('/tmp/origin.git', { bare: true, initialBranch: 'main' })
  await git.configureUser('Ada', 'ada@example.com')
  await git.clone('/tmp/origin.git', { path: '/tmp/work' })
  await git.setConfig('core.abbrev', '12', { scope: 'local', path: '/tmp/work' })
  assert.equal(await git.getConfig('core.abbrev', { scope: 'local', path: '/tmp/work' }), '12')
  await files.write('/tmp/work/a.txt', 'one')
  assert.deepEqual((await git.status('/tmp/work')).fileStatus.map((one) => one.name), ['a.txt'])
  await git.add('/tmp/work')
  await git.commit('/tmp/work', 'first')
  await git.push('/tmp/work', { remote: 'origin', branch: 'main' })
  await git.createBranch('/tmp/work', 'side')
  await git.checkoutBranch('/tmp/work', 'main')
  assert.ok((await git.branches('/tmp/work')).branches.includes('side'))
  await git.deleteBranch('/tmp/work', 'side', { force: true })
  await git.pull('/tmp/work', { remote: 'origin', branch: 'main' })
  await files.write('/tmp/work/a.txt', 'two')
  await git.restore('/tmp/work', { paths: ['a.txt'] })
  await files.write('/tmp/work/a.txt', 'three')
  await git.reset('/tmp/work', { mode: 'hard' })
  assert.equal(await files.read('/tmp/work/a.txt'), 'one')
  await git.remoteAdd('/tmp/work', 'other', '/tmp/origin.git')
  assert.equal(await git.remoteGet('/tmp/work', 'other'), '/tmp/origin.git')
  await git.dangerouslyAuthenticate({ username: 'ada', password: 'secret', host: 'example.com' })
})

test('a template is built, tagged and started from', async (t) => {
  const context = mkdtempSync(join(tmpdir(), 'atoll-js-'))
  t.after(() => rmSync(context, { recursive: true }))
  mkdirSync(join(context, 'app'))
  writeFileSync(join(context, 'app/hello.txt'), 'hello from the build\n')
  const name = unique('served')
  const template = Template({ fileContextPath: context })
    .fromBaseImage()
    .copy('app', '/srv', { user: 'root' })
    .runCmd('echo made > /tmp/made')
    .setStartCmd('python3 -m http.server 8000 --directory /srv', waitForPort(8000))
  assert.ok(Template.toDockerfile(template).includes('COPY'))
  assert.ok((await Template.toJSON(template)).includes('COPY'))
  const logs = []
  const built = await Template.build(template, name, { cpuCount: 1, memoryMB: 512, onBuildLogs: (one) => logs.push(one) })
  assert.ok(logs.length > 0 && built.templateId)
  assert.ok((await Template.exists(name)) && (await Template.aliasExists(name)))
  await Template.assignTags(`${name}:default`, ['stable'])
  assert.ok((await Template.getTags(built.templateId)).some((one) => one.tag === 'stable'))
  const sandbox = await make(t, `${name}:stable`)
  assert.equal((await sandbox.commands.run('curl -s http://localhost:8000/hello.txt')).stdout, 'hello from the build\n')
  await Template.removeTags(name, 'stable')

  const info = await Template.buildInBackground(Template().fromBaseImage().runCmd('echo later'), unique('background'))
  const end = await until(async () => {
    const status = await Template.getBuildStatus(info)
    return ['ready', 'error'].includes(status.status) && status
  })
  assert.equal(end.status, 'ready')
})

test('a volume is shared, and has files without any sandbox', async (t) => {
  const volume = await Volume.create(unique('shared'))
  const sandbox = await make(t, { volumeMounts: { '/data': volume } })
  await sandbox.commands.run('echo from inside > /data/note')
  assert.equal(await volume.readFile('/note'), 'from inside\n')
  await sandbox.kill()
  const again = await Volume.connect(volume.volumeId)
  assert.ok((await Volume.list()).some((one) => one.volumeId === again.volumeId))
  assert.equal((await Volume.getInfo(volume.volumeId)).name, volume.name)
  await again.makeDir('/a')
  await again.writeFile('/a/text', 'größe')
  assert.equal((await again.getInfo('/a/text')).size, 7)
  assert.equal((await again.updateMetadata('/a/text', { mode: 0o600 })).mode & 0o777, 0o600)
  assert.deepEqual((await again.list('/a')).map((one) => one.name), ['text'])
  assert.ok(await again.exists('/a/text'))
  await again.remove('/a/text')
  await assert.rejects(again.readFile('/a/text'), VolumePathNotFoundError)
  assert.ok(await Volume.destroy(volume.volumeId))
  await assert.rejects(Volume.connect(volume.volumeId), VolumeNotFoundError)
})

test('wrong keys, templates and features have their errors', async () => {
  const apiKey = `e2b_${'0'.repeat(40)}`
  await assert.rejects(Sandbox.create({ apiKey }), AuthenticationError)
  await assert.rejects(Sandbox.create('no-such-template'), /no-such-template/)
  await assert.rejects(Sandbox.create({ network: { allowOut: ['example.com'] } }), /ALL_TRAFFIC/)
})
