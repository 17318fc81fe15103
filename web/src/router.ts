import { createRouter, createWebHistory, type RouteLocationNormalized, type Router } from 'vue-router'
import { back } from '@/lib/back'
import { useSession } from '@/lib/session'
import { setupToken } from '@/lib/setup'
import type { Role } from '@/lib/types'
import { visits } from '@/lib/visits'
import Overview from '@/pages/Overview.vue'

declare module 'vue-router' {
  interface RouteMeta {
    // The least role that may see it; without one it is for strangers.
    role?: Role
  }
}

// The first parts of these paths are what the server answers with index.html: internal/web has the same list.
// It reads the address as it is made, so a set-up token must be out of it by then.
export function makeRouter(): Router {
  const router = createRouter({
    history: createWebHistory(),
    scrollBehavior: (_to, _from, saved) => saved ?? { top: 0 },
    routes: [
      { path: '/setup', component: () => import('@/pages/Setup.vue') },
      { path: '/login', component: () => import('@/pages/Login.vue') },
      { path: '/', component: Overview, meta: { role: 'viewer' } },
      { path: '/chat/:conversation?', component: () => import('@/chat/Chat.vue'), meta: { role: 'member' } },
      { path: '/apps', component: () => import('@/pages/Apps.vue'), meta: { role: 'viewer' } },
      { path: '/apps/:app(.+)', component: () => import('@/pages/AppPage.vue'), meta: { role: 'viewer' }, props: true },
      { path: '/files', component: () => import('@/pages/Files.vue'), meta: { role: 'viewer' } },
      { path: '/mesh', component: () => import('@/pages/Mesh.vue'), meta: { role: 'viewer' } },
      { path: '/notices', component: () => import('@/pages/Notices.vue'), meta: { role: 'member' } },
      { path: '/access', component: () => import('@/pages/Access.vue'), meta: { role: 'owner' } },
      { path: '/audit', component: () => import('@/pages/Audit.vue'), meta: { role: 'owner' } },
      { path: '/settings', component: () => import('@/pages/Settings.vue'), meta: { role: 'viewer' } },
      { path: '/accounts', component: () => import('@/pages/Accounts.vue'), meta: { role: 'owner' } },
      { path: '/account', component: () => import('@/pages/Account.vue'), meta: { role: 'viewer' } },
      { path: '/:rest(.*)*', component: () => import('@/pages/NotFound.vue'), meta: { role: 'viewer' } },
    ],
  })

  router.beforeEach((to: RouteLocationNormalized) => {
    const session = useSession()
    if (to.path === '/setup') return setupToken.value || !session.active ? true : '/'
    if (to.path === '/login') return session.active ? back(to.query['next']) : true
    if (!session.active) return { path: '/login', ...(to.fullPath === '/' ? {} : { query: { next: to.fullPath } }) }
    return true
  })

  router.afterEach((to, from, failure) => {
    if (!failure && to.path !== from.path) visits.count++
  })
  return router
}
