package process

import (
	"os"
	"os/user"
	"strings"
	"testing"

	"atoll/internal/app"
)

// An app gets a clean environment, no new privileges, its own session, nothing to read and no files of the node's.
func TestSurroundings(t *testing.T) {
	t.Setenv("ATOLL_TEST_LEAK", "leaked")
	leak, err := os.Open("/etc/passwd") // an open file of the node's
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	dir := empty(t)
	define(t, dir, "one", shell(`env; grep NoNewPrivs /proc/self/status; echo "in $(pwd)"; echo "read $(cat | wc -c)"
umask; ls -l /proc/$$/fd; echo done`,
		"environment: {PORT: 8080, LANG: xx, EMPTY: ''}\ndirectory: /usr"))
	b := open(t, dir)
	b.start("one")
	b.await("one", app.Exited)
	log := b.log("one")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"PORT=8080\n", "LANG=xx\n", "EMPTY=\n", "HOME=" + me.HomeDir + "\n", "USER=" + me.Username + "\n",
		"PATH=" + defaultPath, "NoNewPrivs:\t1", "in /usr\n", "read 0\n", "0022\n", "done"} {
		if !strings.Contains(log, "output: "+want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	for _, open := range []string{"/etc/passwd", "pipe:", "socket:", "anon_inode", "events"} {
		if strings.Contains(log, "-> "+open) {
			t.Errorf("an open file of the node's is passed on:\n%s", log)
		}
	}
	if strings.Contains(log, "leaked") || strings.Contains(log, "ATOLL") {
		t.Errorf("the node's environment is passed on:\n%s", log)
	}
}

// Under a node that runs as root, an app runs as its user with that user's groups only.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("no user nobody")
	}
	dir := empty(t)
	define(t, dir, "one", "user: nobody\n"+shell(`id -u; echo "groups $(id -G)"; cat `+dir+`/apps/one.yaml; kill -0 $PPID; echo done; exec sleep 1000`))
	b := open(t, dir)
	b.start("one")
	b.awaitLog("one", "output: done")
	log := b.log("one")
	if !strings.Contains(log, "output: "+nobody.Uid+"\n") || strings.Contains(log, "groups 0") || strings.Contains(log, " 0\n") {
		t.Errorf("%s", log)
	}
	if strings.Contains(log, "command:") {
		t.Error("it reads the data directory")
	}
	b.stop("one")
}
