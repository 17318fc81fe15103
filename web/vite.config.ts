import { fileURLToPath, URL } from 'node:url'
import vue from '@vitejs/plugin-vue'
import { defineConfig } from 'vite'

// ATOLL names the node that a development server passes calls to.
const node = process.env.ATOLL ?? 'http://127.0.0.1:8420'

export default defineConfig({
  plugins: [vue()],
  resolve: { alias: { '@': fileURLToPath(new URL('./src', import.meta.url)) } },
  define: { __VUE_OPTIONS_API__: 'false', __VUE_PROD_DEVTOOLS__: 'false', __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: 'false' },
  build: {
    outDir: '../internal/web/dist',
    emptyOutDir: true,
    target: 'es2022',
    // The policy allows no data: address, so nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      checks: { bundlerTimings: false }, // advice about the build's own speed
      output: {
        codeSplitting: {
          groups: [
            // What nearly every page needs comes in two files instead of thirty.
            { name: 'vue', test: /node_modules[\\/](?:@vue|vue|vue-router|pinia)[\\/]/ },
            { name: 'ui', test: /src[\\/](?:lib|ui)[\\/](?!Plot|Dialog|visible|lookalikes)/, minShareCount: 4 },
          ],
        },
      },
    },
  },
  server: {
    proxy: Object.fromEntries(['/rpc', '/session', '/events'].map((path) => [path, { target: node, headers: { Origin: node } }])),
  },
})
