// save hands a text to the browser as a file.
export function save(text: string, name: string, format: 'json' | 'markdown'): void {
  const kind = format === 'json' ? 'application/json' : 'text/markdown'
  const url = URL.createObjectURL(new Blob([text], { type: `${kind};charset=utf-8` }))
  const link = document.createElement('a')
  link.href = url
  link.download = `${name.replace(/[^\w-]/g, '_')}.${format === 'json' ? 'json' : 'md'}`
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 1000)
}
