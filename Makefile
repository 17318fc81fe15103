.PHONY: run test lint bench proof attacks crash histories fuzz soak apifuzz browser teeth

run:            ## a node with a sample app, and a chat on it
	go run ./cmd/atoll try

test:           ## everything that a change must pass
	./scripts/test

lint:
	gofmt -l cmd internal *.go
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench:          ## the table of speed and size beside a bare loop
	./scripts/bench

proof: attacks teeth histories crash soak apifuzz ## all of these, then five minutes for each parser of strangers' bytes; some five hours on two cores
	FUZZTIME=5m ./scripts/fuzz strangers

attacks:        ## 250,000 hostile cases (CASES=n) of the shared texts where they are, else all of the program's own; tasks and harmless texts
	mkdir -p bin
	go test -run TestSuite -count=1 -cpuprofile $(CURDIR)/bin/attacks.pgo -o bin/attacks.test ./internal/eval/attack -args -cases=6000 -every=40 -worlds=6
	GODEBUG=adaptivestackstart=1 go test -run TestSuite -v -count=1 -pgo=$(CURDIR)/bin/attacks.pgo -timeout 4h ./internal/eval/attack -args -cases=$(or $(CASES),250000) -worlds=6 \
		-seed=$(or $(SEED),$(shell date +%s))

KILLS = 1000

crash:          ## kill -9, 1,000 times under load over all doors (KILLS=n), every damage of every file, full and read-only disks
	go test -run TestKill -count=1 -timeout 4h -v ./internal/eval/durable -args -kills=$(KILLS) -seed=$$(date +%s)
	go test -run 'TestDamage|TestDisk|TestStranger' -count=1 -timeout 60m ./internal/eval/durable -args -all -rounds=20

histories:      ## a million drawn histories beside the rules, 4,000 over HTTP, 2,000 real kill -9; SEQUENCES= and SEED= change that
	GOGC=300 go test -run 'TestSequences|TestVisits|TestKilled|TestCases' -v -count=1 -timeout 24h ./internal/eval/sequence \
		-args -sequences=$(or $(SEQUENCES),1000000) -workers=2 -visits=4000 -kills=2000 -seed=$(or $(SEED),$(shell date +%s))

fuzz:           ## each fuzz target for FUZZTIME (1m); ONLY=strangers, or a pattern, for some of them
	./scripts/fuzz $(ONLY)

soak:           ## 200 sessions for half an hour beside failing models and rude clients; figures in soak.json
	mkdir -p bin/soak
	go test -run TestSoak -v -count=1 -timeout 60m ./internal/eval/soak -args -soak=30m -sessions=200 -out=$(CURDIR)/bin/soak

teeth:          ## seeds faults into the code, one at a time, and shows which test finds each
	go run ./scripts/teeth

apifuzz:        ## every method under Schemathesis, as owner, member, viewer and stranger; needs PyPI
	./scripts/apifuzz

browser:        ## the interface in Chromium, against the real node and a scripted model
	CGO_ENABLED=0 go build -o bin/atoll ./cmd/atoll
	cd web && npm ci --no-audit --no-fund --loglevel=error && ATOLL_BIN=$(CURDIR)/bin/atoll npm run --silent browser
