package propagation

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const services = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{name: http, port: 80}, {name: https, port: 443}, {name: admin, port: 9000}]
---
apiVersion: v1
kind: Service
metadata: {name: local}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {app: web}
  ports: [{name: http, port: 80}]
`

// nodePorts of a Service by the port's name, and that of its health check.
func nodePorts(svc *corev1.Service) map[string]int32 {
	out := map[string]int32{}
	if n := svc.Spec.HealthCheckNodePort; n != 0 {
		out["health"] = n
	}
	for _, p := range svc.Spec.Ports {
		out[p.Name] = p.NodePort
	}
	return out
}

// portsIn waits until a Service in a member has a label, and returns its ports.
func portsIn(t testing.TB, member, ns, name, round string) map[string]int32 {
	t.Helper()
	var out map[string]int32
	labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
		svc, err := labtest.Client(t, world.Member(member)).CoreV1().Services(ns).Get(ctx, name, getNow)
		if err == nil && svc.Labels["round"] != round {
			err = fmt.Errorf("%s in %s: labels %v, want round %q", name, member, svc.Labels, round)
		}
		if err == nil {
			out = nodePorts(svc)
		}
		return err
	})
	return out
}

// What an API server has allocated for a Service is each member's own and
// stays; a port that somebody wrote is the same everywhere, and where it is
// taken only that cluster is named. Addresses come back as they are.
func TestServicePorts(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, services, "-n", ns, "apply", "-f", "-")
	clusters := []string{"m1", "m2", "m3"}
	before := map[string]map[string]int32{}
	for _, m := range clusters {
		before[m], before[m+" local"] = portsIn(t, m, ns, "web", ""), portsIn(t, m, ns, "local", "")
		if before[m]["http"] == 0 || before[m+" local"]["health"] == 0 {
			t.Fatalf("%s has allocated %v and %v", m, before[m], before[m+" local"])
		}
	}
	if maps.Equal(before["m1"], before["m2"]) || maps.Equal(before["m1"], before["m3"]) {
		t.Errorf("the ports are the same in several clusters: %v", before)
	}
	for round := range 3 {
		kubectl(t, "", "-n", ns, "label", "service", "--all", "--overwrite", fmt.Sprintf("round=%d", round))
	}
	for _, m := range clusters {
		for suffix, name := range map[string]string{"": "web", " local": "local"} {
			if now := portsIn(t, m, ns, name, "2"); !maps.Equal(now, before[m+suffix]) {
				t.Errorf("ports of %s in %s became %v, were %v", name, m, now, before[m+suffix])
			}
		}
	}
	t.Run("addresses", func(t *testing.T) { addressesComeBack(t, ns) })
	t.Run("a port goes", func(t *testing.T) {
		kubectl(t, "", "-n", ns, "patch", "service", "web", "--type=json", "-p", `[{"op":"remove","path":"/spec/ports/1"}]`)
		kubectl(t, "", "-n", ns, "label", "service", "web", "--overwrite", "round=3")
		for _, m := range clusters {
			delete(before[m], "https")
			if now := portsIn(t, m, ns, "web", "3"); !maps.Equal(now, before[m]) {
				t.Errorf("ports in %s became %v, want %v", m, now, before[m])
			}
		}
	})
	t.Run("a port that somebody wrote", func(t *testing.T) { writtenPort(t, ns, before) })
}

// writtenPort writes a node port that m2 has given away.
func writtenPort(t *testing.T, ns string, before map[string]map[string]int32) {
	m2 := world.Member("m2").Kubeconfig()
	labtest.MustKubectl(t, m2, "", "-n", ns, "create", "service", "nodeport", "taken", "--tcp=80:80")
	port := strings.TrimSpace(labtest.MustKubectl(t, m2, "", "-n", ns, "get", "service", "taken", "-o", "jsonpath={.spec.ports[0].nodePort}"))
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "", "-n", ns, "patch", "service", "web", "-p", fmt.Sprintf(`{"metadata":{"labels":{"round":"4"}},"spec":{"ports":[{"port":80,"nodePort":%d}]}}`, n))
	for _, m := range []string{"m1", "m3"} {
		want := maps.Clone(before[m])
		want["http"] = int32(n)
		if now := portsIn(t, m, ns, "web", "4"); !maps.Equal(now, want) {
			t.Errorf("ports in %s became %v, want %v", m, now, want)
		}
	}
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		said := get(t, ns, "resourcebinding/web-service", `{.status.conditions[?(@.type=="FullyApplied")].message}`)
		if !strings.HasPrefix(said, "m2: ") || !strings.Contains(said, "already allocated") || strings.Contains(said, "m1: ") || strings.Contains(said, "m3: ") {
			return fmt.Errorf("FullyApplied says %q", said)
		}
		events := kubectl(t, "", "-n", ns, "get", "events", "--field-selector=type=Warning,involvedObject.kind=Service,involvedObject.name=web")
		if !strings.Contains(events, "m2") || !strings.Contains(events, "already allocated") {
			return fmt.Errorf("no Warning tells it:\n%s", events)
		}
		return nil
	})
	if now := portsIn(t, "m2", ns, "web", "3"); !maps.Equal(now, before["m2"]) {
		t.Errorf("the refused Service in m2 has %v, had %v", now, before["m2"])
	}
	labtest.MustKubectl(t, m2, "", "-n", ns, "delete", "service", "taken")
	if now := portsIn(t, "m2", ns, "web", "4"); now["http"] != int32(n) {
		t.Errorf("the port is free, and m2 has %v", now)
	}
}

// addressesComeBack: the addresses that members report, as they are.
func addressesComeBack(t *testing.T, ns string) {
	for m, address := range map[string]string{"m1": `{"ip":"10.0.0.1"}`, "m2": `{"hostname":"lb.example.net"}`} {
		labtest.MustKubectl(t, world.Member(m).Kubeconfig(), "", "-n", ns, "patch", "service", "local", "--subresource=status", "--type=merge",
			"-p", `{"status":{"loadBalancer":{"ingress":[`+address+`]}}}`)
	}
	eventually(t, ns, "service/local", `{range .status.loadBalancer.ingress[*]}{.ip}/{.hostname} {end}`, "/lb.example.net 10.0.0.1/")
	kubectl(t, "", "-n", ns, "get", "service", "local")
}
