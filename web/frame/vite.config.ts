import { readFileSync } from 'node:fs'
import { fileURLToPath, URL } from 'node:url'
import { defineConfig } from 'vite'

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url))

// The frame's scripts are classic: its origin is opaque, and a module's would need CORS headers. There are two, so that an
// empty transcript does not wait for what draws Markdown.
export default defineConfig(({ mode }) => ({
  root: here('.'),
  publicDir: false,
  plugins: mode === 'text' ? [] : [
    {
      name: 'frame-document',
      generateBundle() {
        this.emitFile({ type: 'asset', fileName: 'index.html', source: readFileSync(here('./frame.html'), 'utf8') })
      },
    },
  ],
  build: {
    outDir: here('../../internal/web/dist/frame'),
    emptyOutDir: mode !== 'text',
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
    rolldownOptions: {
      input: here(mode === 'text' ? './text.ts' : './frame.ts'),
      output: { format: 'iife', entryFileNames: mode === 'text' ? 'text.js' : 'frame.js', assetFileNames: 'frame[extname]' },
    },
  },
}))
