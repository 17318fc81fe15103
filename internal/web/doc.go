// Package web holds the built interface and serves it: pages, script and style, each with the policy that the browser
// holds it to. It is no API and reads nothing of the node; the sources are in web/ and the build is committed in dist/.
package web
