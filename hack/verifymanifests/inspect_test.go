package main

import (
	"strings"
	"testing"
)

const sound = `apiVersion: v1
kind: Namespace
metadata: {name: a}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: c
        image: x
        command: [/usr/bin/web]
        args: [--port=1, --quiet]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

func TestInspect(t *testing.T) {
	for _, tt := range []struct{ name, old, new, fault string }{
		{"sound", "", "", ""},
		{"unknown field", "metadata: {name: web}", "metadata: {nam: web}", "unknown field"},
		{"unknown kind", "kind: Namespace", "kind: Namespaces", "Namespaces"},
		{"wrong type", "args: [--port=1, --quiet]", "args: yes", "cannot unmarshal"},
		{"other selector", "matchLabels: {app: web}", "matchLabels: {app: db}", "does not select its own Pods"},
		{"root", "runAsNonRoot: true, ", "", "is not restricted"},
		{"capabilities", "capabilities: {drop: [ALL]}", "capabilities: {}", "is not restricted"},
		{"a token", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "mounts a token"},
		{"a token by default", "automountServiceAccountToken: false", "hostname: a", "mounts a token"},
		{"rights", "apiVersion: v1\nkind: Namespace", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole", "gives rights"},
		{"no command", "command: [/usr/bin/web]", "command: []", "names no command"},
		{"no workload", "kind: Deployment", "kind: DaemonSet", "no workload"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects, err := decode([]byte(strings.Replace(sound, tt.old, tt.new, 1)))
			if err == nil {
				_, err = inspect(objects)
			}
			if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%v, want %q", err, tt.fault)
			}
		})
	}
	if _, err := decode([]byte("\n---\n\n")); err == nil {
		t.Error("nothing at all is sound")
	}
}

func TestUnknownFlags(t *testing.T) {
	const help = "Flags:\n      --port int         the port\n  -q, --quiet            say nothing\n      --data-dir string  folder (see --other)\n"
	objects, err := decode([]byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	found, err := inspect(objects)
	if err != nil {
		t.Fatal(err)
	}
	if err := found[0].unknownFlags(help); err != nil || found[0].program != "web" || len(found[0].flags) != 2 {
		t.Errorf("%+v: %v", found[0], err)
	}
	for _, f := range []string{"por", "data", "dir", "loud"} {
		if err := (invocation{program: "web", flags: []string{f}}).unknownFlags(help); err == nil {
			t.Errorf("--%s is taken for a flag", f)
		}
	}
}

func TestExecStart(t *testing.T) {
	i, err := execStart("web.service", "[Service]\nExecStart=/usr/bin/web \\\n  --port=1 \\\n  $FLAGS --quiet\nRestart=always\n")
	if err != nil || i.program != "web" || strings.Join(i.flags, " ") != "port quiet" {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := execStart("web.service", "[Service]\nExecStart=\n"); err == nil {
		t.Error("a unit that starts nothing is sound")
	}
}
