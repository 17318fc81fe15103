import { readFileSync } from 'node:fs'
import { fileURLToPath, URL } from 'node:url'
import { defineConfig } from 'vite'

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url))

// The frame is one classic script: its origin is opaque, and a module's would need CORS headers.
export default defineConfig({
  root: here('.'),
  publicDir: false,
  plugins: [
    {
      name: 'frame-document',
      generateBundle() {
        this.emitFile({ type: 'asset', fileName: 'index.html', source: readFileSync(here('./frame.html'), 'utf8') })
      },
    },
  ],
  build: {
    outDir: here('../../internal/web/dist/frame'),
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
    rolldownOptions: {
      input: here('./frame.ts'),
      output: { format: 'iife', entryFileNames: 'frame.js', assetFileNames: 'frame[extname]' },
    },
  },
})
