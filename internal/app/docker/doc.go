// Package docker is the runtime of the containers that are already there: it finds the engine (Docker, or Podman by the
// same API), lists its containers, reads their logs, starts and stops them. It makes, changes and removes none, and no
// call that could stands in it.
//
// # Names
//
// The containers of a Compose project are one app by the project's name; each of its services, all replicas together,
// is an app "project/service". Any other container is an app by its own name. Where a project or service has that name
// the container is "/name", which is understood for every lone container. A container made anew under the same name is
// the same app.
//
// # Stopped or exited
//
// An engine does not keep whether a person stopped a container or it ended by itself. A container reads "stopped" where
// this program stopped it or saw the engine's stop or kill event. For ends that nobody here saw, one that the engine
// would have started again (restart policy always or unless-stopped) was stopped, and so was one that ended by SIGTERM,
// SIGINT or SIGKILL without want of memory; anything else reads "exited" with its code. Podman sends no stop event,
// so one of its containers that another program stopped and that ended with 0 reads "exited" with code 0.
//
// # State of a project
//
// It runs where all that should run does. A service that ended by itself with 0 is done and no longer should, unless
// the engine would have started it again. A service that others wait for until it completes is such a one whatever its
// restart policy.
package docker
