// Notes which public methods of the SDK the cases called.
import { writeFileSync } from 'node:fs'
import { Git, Sandbox, Secret, Template, TemplateBase, Volume } from 'e2b'

const PUBLIC = {
  Sandbox: 'create connect list kill getInfo getMetrics setTimeout updateNetwork pause betaPause createSnapshot listSnapshots deleteSnapshot fork getHost isRunning uploadUrl downloadUrl',
  Commands: 'list sendStdin closeStdin kill connect run',
  CommandHandle: 'wait disconnect kill sendStdin closeStdin',
  Pty: 'create connect sendInput resize kill',
  Filesystem: 'read write writeFiles list makeDir rename remove exists getInfo watchDir',
  WatchHandle: 'stop',
  Git: 'clone init remoteAdd remoteGet status branches createBranch checkoutBranch deleteBranch add commit reset restore push pull setConfig getConfig dangerouslyAuthenticate configureUser',
  Volume: 'create connect getInfo list destroy makeDir exists updateMetadata readFile writeFile remove',
  Secret: 'create update getInfo list exists destroy',
  Template: 'build buildInBackground getBuildStatus exists aliasExists assignTags removeTags getTags toJSON toDockerfile',
}
const called = new Set()

function watch(label, owner) {
  for (let one = owner; one && one !== Object.prototype && one !== Function.prototype; one = Object.getPrototypeOf(one)) {
    for (const name of Object.getOwnPropertyNames(one)) {
      const entry = Object.getOwnPropertyDescriptor(one, name)
      if (name === 'constructor' || typeof entry.value !== 'function' || !entry.configurable || entry.value.noted) continue
      const method = entry.value
      const noting = function (...args) {
        called.add(`${label}.${name}`)
        return method.apply(this, args)
      }
      noting.noted = true
      Object.defineProperty(one, name, { ...entry, value: noting })
    }
  }
}

// Those that the SDK does not export are seen when the first of them appears.
export const seen = (label, object) => (watch(label, Object.getPrototypeOf(object)), object)

watch('Sandbox', Sandbox)
watch('Sandbox', Sandbox.prototype)
watch('Git', Git.prototype)
watch('Volume', Volume)
watch('Volume', Volume.prototype)
watch('Secret', Secret)
watch('Template', TemplateBase)
for (const name of PUBLIC.Template.split(' ')) {
  const method = Template[name]
  Template[name] = (...args) => (called.add(`Template.${name}`), method.apply(Template, args))
}

export function report() {
  const all = Object.entries(PUBLIC).flatMap(([label, names]) => names.split(' ').map((name) => `${label}.${name}`))
  writeFileSync(process.env.ATOLL_CALLS, JSON.stringify(Object.fromEntries(all.map((name) => [name, called.has(name)]))))
}
