// Words on a new password while it is typed. The node decides; these only tell its rules before it is asked.

export const shortest = 10 // characters
export const longest = 1024 // bytes

export interface Verdict {
  ok: boolean
  tone: 'bad' | 'warn' | 'ok'
  words: string
}

export function judge(password: string, username: string): Verdict {
  const chars = [...password]
  const no = (words: string): Verdict => ({ ok: false, tone: 'bad', words })
  if (chars.length === 0) return no(`At least ${shortest} characters. Four or five unrelated words make a good one.`)
  if (chars.length < shortest) return no(`${shortest - chars.length} more to go: at least ${shortest} characters.`)
  if (new TextEncoder().encode(password).length > longest) return no(`At most ${longest} bytes.`)
  if (password.toLowerCase() === username.trim().toLowerCase()) return no('It must not be the username.')
  const different = new Set(chars).size
  if (different === 1) return no('It must not be one character repeated.')
  // Length counts more than kinds of characters; few different ones are soon guessed.
  if (different < 6 || /^\d+$/.test(password) || /^(?:1234567890|qwertyuiop|password)/i.test(password)) return { ok: true, tone: 'warn', words: 'Easily guessed: few different characters, or a well-known row of them. Longer and less regular is better.' }
  if (chars.length < 14) return { ok: true, tone: 'warn', words: 'Fair. A few more characters, or another word, make it strong.' }
  return { ok: true, tone: 'ok', words: 'Strong. A password manager remembers it for you.' }
}
