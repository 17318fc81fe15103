// hex is a character's code as it is written between the brackets.
export function hex(code: number): string {
  return code.toString(16).toUpperCase().padStart(4, '0')
}

const unseenInText = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029\u034F\u115F\u1160\u17B4\u17B5\u2800\u3164\uFFA0\uFFF0-\uFFF8\uFFFC]/gu

// clear is for what is only read: log lines, details, notices. Letters stand as they are; what cannot be seen, or turns
// what can, is shown as its code. Tabs stay, and so do line breaks where they are wanted.
export function clear(s: string | null | undefined, keep: '\t' | '\t\n' = '\t'): string {
  return (s ?? '').replace(unseenInText, (c) => (keep.includes(c) ? c : `⟨U+${hex(c.codePointAt(0) ?? 0)}⟩`))
}
