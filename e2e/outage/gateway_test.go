package outage

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const gateway = "cluster-gateway"

// separateGateway runs the same endpoint with a gateway of its own process, and
// without one again at the end of the test.
func separateGateway(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	restart := func(options lab.SystemOptions) {
		for _, name := range []string{gateway, endpoint} {
			if world.System.PID(name) == 0 {
				continue
			}
			if err := world.System.StopProcess(name, 15*time.Second); err != nil {
				t.Errorf("stop %s: %v", name, err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a build of the gateway may be in it
		defer cancel()
		system, err := lab.StartSystem(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		world.System = system
	}
	t.Cleanup(func() { restart(world.SystemOptions(t.Logf)) })
	options := world.SystemOptions(t.Logf)
	options.Flags = []string{"--gateway", address}
	options.GatewayFlags = []string{
		"--certificates", world.System.DataDir() + "/pki", "--endpoint", "https://" + world.System.Address(),
		"--listen", address, "--metrics-listen", "",
	}
	restart(options)
	if world.System.PID(gateway) == 0 {
		t.Fatal("the gateway does not run")
	}
}

// With the member cache in a process of its own everything works as before, the
// endpoint does not grow with the Pods, and the gateway's end is survived.
func TestSeparateGateway(t *testing.T) {
	awaitLive(t, "m1", "m2")
	ns := memberNamespace(t, "gateway", world.m1, world.m2)
	separateGateway(t)
	awaitLive(t, "m1", "m2")
	for name, m := range map[string]*lab.Member{"m1": world.m1, "m2": world.m2} {
		runPod(t, m, ns, "pod-"+name)
		served(t, 20*time.Second, ns, "pod-"+name, name)
	}
	t.Run("verbs", func(t *testing.T) { gatewayVerbs(t, ns) })
	t.Run("killed", func(t *testing.T) { gatewayIsKilled(t, ns) })
	t.Run("memory", func(t *testing.T) { endpointStaysSmall(t) })
}

func gatewayVerbs(t *testing.T, ns string) {
	config := labtest.Config(t, world.System)
	pods := "/api/v1/namespaces/" + ns + "/pods"
	rv, items := versions(t, mustAsk(t, config, pods).body)
	if items["pod-m1"] == 0 || items["pod-m2"] == 0 {
		t.Fatalf("the list has %v", items)
	}
	s := mustWatch(t, config, fmt.Sprintf("%s?watch=1&resourceVersion=%d", pods, rv))
	all := mustWatch(t, config, pods+"?"+watchListQuery)
	all.await(t, within(2*time.Second), "the end of the initial events", initialEnd)
	admin := world.System.Kubeconfig()
	out := labtest.MustKubectl(t, admin, "", "-n", ns, "exec", "pod-m2", "--", "sh", "-c", "echo in $CLUSTER")
	if !strings.Contains(out, "in m2") {
		t.Errorf("exec says %q", out)
	}
	if out := labtest.MustKubectl(t, admin, "", "-n", ns, "logs", "pod-m1"); !strings.Contains(out, "cluster m1") {
		t.Errorf("logs say %q", out)
	}
	labtest.MustKubectl(t, admin, "", "-n", ns, "label", "pod", "pod-m1", "step=1")
	for name, stream := range map[string]*stream{"watch": s, "WatchList": all} {
		stream.await(t, within(5*time.Second), "MODIFIED pod-m1 on the "+name, eventOf("MODIFIED", "pod-m1"))
	}
	runPod(t, world.m2, ns, "victim")
	s.await(t, within(5*time.Second), "ADDED victim", eventOf("ADDED", "victim"))
	labtest.MustKubectl(t, admin, "", "-n", ns, "delete", "pod", "victim", "--timeout=150s")
	s.await(t, within(5*time.Second), "DELETED victim", eventOf("DELETED", "victim"))
}

// gatewayIsKilled: informers of before recover by themselves.
func gatewayIsKilled(t *testing.T, ns string) {
	direct := map[string]view{}
	wl := informer(t, labtest.Client(t, world.System), ns, true)
	lw := informer(t, labtest.Client(t, world.System), ns, false)
	if err := world.System.Kill(gateway); err != nil {
		t.Fatal(err)
	}
	clientPods := labtest.Client(t, world.m1).CoreV1().Pods(ns)
	if err := clientPods.Delete(t.Context(), "pod-m1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	runPod(t, world.m1, ns, "meanwhile")
	ctx, cancel := context.WithTimeout(t.Context(), within(time.Minute))
	defer cancel()
	if err := world.System.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*lab.Member{world.m1, world.m2} {
		direct[m.Name()] = directView(informer(t, labtest.Client(t, m), ns, true))
	}
	labtest.Eventually(t, within(settleLimit), func(context.Context) error {
		for name, store := range map[string]map[string]view{"WatchList": servedView(wl), "LIST and WATCH": servedView(lw)} {
			for member, want := range direct {
				if differ := differences(want, store[member]); len(differ) > 0 {
					return fmt.Errorf("the informer by %s differs for %s: %v", name, member, differ)
				}
			}
		}
		return nil
	})
	awaitLive(t, "m1", "m2")
}

// endpointStaysSmall: Pods are the gateway's memory, not the endpoint's.
func endpointStaysSmall(t *testing.T) {
	const (
		grows = 20 // MiB
		noise = 15 // MiB: what a garbage collector has not given back
	)
	pods := 2000
	if size.pods >= 5000 {
		pods = 10000
	}
	ns := memberNamespace(t, "memory", world.m1, world.m2)
	mustAsk(t, labtest.Config(t, world.System), "/api/v1/pods")
	before := residentMiB(t)
	for _, m := range []*lab.Member{world.m1, world.m2} {
		pend(t, m, ns, int32(pods/2))
	}
	want := pods / 2 * 2
	labtest.Eventually(t, within(30*time.Second)+time.Duration(pods)*20*time.Millisecond, func(ctx context.Context) error {
		a, err := ask(ctx, labtest.Config(t, world.System), "/api/v1/namespaces/"+ns+"/pods")
		if err != nil {
			return err
		}
		if _, items := versions(t, a.body); len(items) != want {
			return fmt.Errorf("%d Pods are served, want %d", len(items), want)
		}
		return nil
	})
	after := residentMiB(t)
	t.Logf("the endpoint has %d MiB with %d more Pods, %d MiB before", after, want, before)
	if after > before+grows+noise {
		t.Errorf("%d Pods made the endpoint grow from %d to %d MiB, want at most %d more", want, before, after, grows+noise)
	}
}

// pend makes a Deployment whose Pods nobody schedules: they cost a member no
// more than their creation.
func pend(t testing.TB, m *lab.Member, ns string, pods int32) {
	t.Helper()
	labels := map[string]string{"app": "pending"}
	spec := barePod(ns, "pending").Spec
	spec.SchedulerName = "nobody"
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "pending"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &pods, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
	if _, err := labtest.Client(t, m).AppsV1().Deployments(ns).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Deployment in %s: %v", m.Name(), err)
	}
}

// residentMiB is the memory of the endpoint's process after a collection.
func residentMiB(t testing.TB) int {
	t.Helper()
	least := 0
	for range 4 {
		mustAsk(t, labtest.Config(t, world.System), "/debug/pprof/heap?gc=1")
		time.Sleep(time.Second)
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", world.System.PID(endpoint)))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(data), "VmRSS:")
		if !ok {
			t.Fatalf("no VmRSS in %s", data)
		}
		kib, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		if mib := kib / 1024; least == 0 || mib < least {
			least = mib
		}
	}
	return least
}
