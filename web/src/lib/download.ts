// download saves a text as a file of the person's own.
export function download(name: string, kind: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: kind }))
  const a = document.createElement('a')
  a.href = url
  a.download = name
  a.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}
