// Runs code with E2B's code interpreter, and prints what came of it.
import { Sandbox } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create({ timeoutMs: 600_000 })
try {
  await sandbox.runCode('x = 20', { timeoutMs: 240_000 })
  const value = await sandbox.runCode('x * 2', { timeoutMs: 240_000 })
  const failed = await sandbox.runCode('print("said")\n1 / 0', { timeoutMs: 240_000 })
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  const elsewhere = await sandbox.runCode('import os; os.getcwd()', { context, timeoutMs: 240_000 })
  console.log(JSON.stringify([value.text, failed.logs.stdout, failed.error.name, elsewhere.text]))
} finally {
  await sandbox.kill()
}
