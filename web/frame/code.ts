// Colours for code: a few languages that people who run servers meet.

import hljs from 'highlight.js/lib/core'
import bash from 'highlight.js/lib/languages/bash'
import go from 'highlight.js/lib/languages/go'
import ini from 'highlight.js/lib/languages/ini'
import javascript from 'highlight.js/lib/languages/javascript'
import json from 'highlight.js/lib/languages/json'
import nginx from 'highlight.js/lib/languages/nginx'
import python from 'highlight.js/lib/languages/python'
import sql from 'highlight.js/lib/languages/sql'
import yaml from 'highlight.js/lib/languages/yaml'

const languages = { bash, go, ini, javascript, json, nginx, python, sql, yaml }
for (const [name, grammar] of Object.entries(languages)) hljs.registerLanguage(name, grammar)

/** Longer code stays plain: colours are not worth a wait. */
const MAX_COLOURED = 20_000

/** highlight colours a code element of a known language; clean turns the highlighter's HTML into elements. */
export function highlight(code: Element | null, language: string, clean: (html: string) => DocumentFragment): void {
  const text = code?.textContent ?? ''
  if (!code || !hljs.getLanguage(language) || text.length > MAX_COLOURED) return
  code.replaceChildren(clean(hljs.highlight(text, { language, ignoreIllegals: true }).value))
}
