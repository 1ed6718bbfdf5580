package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// A member takes a write and its answer is lost: the client learns that nobody
// knows, gets no invitation to repeat it, and the endpoint has not repeated it.
func TestLostAnswer(t *testing.T) {
	ns, config := namespace(t), labtest.Config(t, world.System)
	running(t, ns, inCluster(pod("warm"), "m2")) // a connection is open, and the namespace is there
	member := labtest.Client(t, world.Member("m2"))
	p := inCluster(pod(""), "m2")
	p.GenerateName = "lost-"
	body := manifest(t, p)
	world.proxy.DropUpstream()
	defer healed(t)
	a := ask(t, config, "POST", podPath(ns, ""), body, contentType, jsonType)
	if a.code != http.StatusGatewayTimeout || a.header.Get("Retry-After") != "" || !strings.Contains(a.status(t).Message, "m2") {
		t.Errorf("the answer is %s with Retry-After %q, want 504 that names m2", a, a.header.Get("Retry-After"))
	}
	if d := a.status(t).Details; d != nil && d.RetryAfterSeconds > 0 {
		t.Errorf("the Status invites to repeat: %+v", d)
	}
	list, err := member.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for _, p := range list.Items {
		if strings.HasPrefix(p.Name, "lost-") {
			made++
		}
	}
	if made != 1 {
		t.Errorf("the member holds %d Pods of one creation", made)
	}
}

// deadCluster is a membership whose member has never answered.
const deadCluster = `
apiVersion: v1
kind: Secret
metadata: {name: m9, namespace: isthmus-system}
stringData: {token: none}
---
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: m9}
spec:
  syncMode: Push
  apiEndpoint: https://127.0.0.1:9
  insecureSkipTLSVerification: true
  secretRef: {namespace: isthmus-system, name: m9}
`

// A member that was never synced is left out of answers, which say so.
func TestNeverSyncedMember(t *testing.T) {
	admin, config := world.System.Kubeconfig(), labtest.Config(t, world.System)
	ns := namespace(t)
	running(t, ns, pod("web"))
	labtest.MustKubectl(t, admin, deadCluster, "apply", "-f", "-")
	defer func() {
		labtest.MustKubectl(t, admin, deadCluster, "delete", "-f", "-", "--wait=false")
		labtest.Eventually(t, 30*time.Second, func(context.Context) error {
			if res := labtest.Kubectl(t, admin, "", "get", "cluster", "m9"); res.Code == 0 {
				return fmt.Errorf("the Cluster is still there: %s", res.Out)
			}
			return nil
		})
	}()
	labtest.Eventually(t, 20*time.Second, func(context.Context) error {
		started := time.Now()
		a := ask(t, config, "GET", podPath(ns, ""), nil)
		var list corev1.PodList
		if err := json.Unmarshal(a.body, &list); err != nil || a.code != 200 || len(list.Items) != 1 {
			t.Fatalf("LIST: %s (%v)", a, err)
		}
		if took := time.Since(started); took > 2*time.Second {
			t.Fatalf("LIST took %s", took)
		}
		if warnings := strings.Join(a.header.Values("Warning"), " "); !strings.Contains(warnings, "m9") {
			return fmt.Errorf("no warning names m9: %q", warnings)
		}
		return nil
	})
	w, err := endpoint(t).CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next(t, w, "ADDED", 5*time.Second)
	if a := ask(t, config, "GET", podPath(ns, "")+"?consistency=strict", nil); a.code != http.StatusServiceUnavailable || !strings.Contains(a.status(t).Message, "m9") {
		t.Errorf("a strict LIST: %s, want 503 that names m9", a)
	}
}

// Reads come from the cache: no member sees a request for them. A strict read
// asks the members, sees what was written there a moment before, and fails
// where one does not answer.
func TestReadsAreCached(t *testing.T) {
	ns, config := namespace(t), labtest.Config(t, world.System)
	running(t, ns, inCluster(pod("web"), "m1"))
	running(t, ns, inCluster(pod("other"), "m2"))
	logs := map[string]labtest.AuditLog{"m1": labtest.MemberAudit(t, world.Member("m1")), "m2": labtest.MemberAudit(t, world.Member("m2"))}
	for range 20 {
		for _, path := range []string{podPath(ns, "web"), podPath(ns, ""), podPath(ns, "") + "?limit=1", "/api/v1/nodes?resourceVersion=0", "/api/v1/namespaces/" + ns + "/events"} {
			if a := ask(t, config, "GET", path, nil); a.code != 200 {
				t.Fatalf("%s: %s", path, a)
			}
		}
	}
	for name, log := range logs {
		for _, a := range log.Read(t) {
			reads := a.Verb == "get" || a.Verb == "list"
			switch a.ObjectRef.Resource {
			case "pods", "nodes", "events":
				if reads && a.User.Username == labtest.ReadUser {
					t.Errorf("%s was asked: %s", name, a.RequestURI)
				}
			}
		}
	}
	member := labtest.Client(t, world.Member("m2"))
	for i := range 20 {
		made := pod(fmt.Sprintf("direct-%d", i))
		if _, err := member.CoreV1().Pods(ns).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if a := ask(t, config, "GET", podPath(ns, made.Name)+"?consistency=strict", nil); a.code != 200 {
			t.Errorf("a strict GET right after a write in the member: %s", a)
		}
	}
	made := pod("direct-watched")
	if _, err := member.CoreV1().Pods(ns).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const initial = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=2"
	a := ask(t, config, "GET", podPath(ns, "")+initial+"&consistency=strict", nil)
	events, _, complete := strings.Cut(string(a.body), "k8s.io/initial-events-end")
	if a.code != 200 || !complete || !strings.Contains(events, `"name":"`+made.Name+`"`) {
		t.Errorf("a strict watch-list right after a write in the member: %s", a)
	}
	world.proxy.Blackhole()
	defer healed(t)
	started := time.Now()
	a = ask(t, config, "GET", podPath(ns, "")+"?consistency=strict", nil)
	if a.code != http.StatusServiceUnavailable || !strings.Contains(a.status(t).Message, "m2") || time.Since(started) > requestTimeout+2*time.Second {
		t.Errorf("a strict LIST with m2 away: %s after %s", a, time.Since(started))
	}
	if a := ask(t, config, "GET", podPath(ns, ""), nil); a.code != 200 {
		t.Errorf("an ordinary LIST with m2 away: %s", a)
	}
}
