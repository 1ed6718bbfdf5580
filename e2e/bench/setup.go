package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

const (
	gatewayName  = "cluster-gateway"
	endpointName = "multicluster-apiserver"
)

var errProcessGone = errors.New("does not run")

// fleet is what is measured: the reference, and the product over two members.
type fleet struct {
	logf    Logf
	plain   *lab.Member
	members []*lab.Member
	system  *lab.System
	// metrics is the gateway's address of metrics and profiles; "" when it
	// runs inside the endpoint.
	metrics string

	reference target
	product   target
	// direct are the members; gateway is asked without the endpoint before it.
	direct  []target
	gateway *target
	// pods are the numbers of the Pods in each cluster.
	pods map[string][]int
}

// startFleet brings everything up and stops what would change Pods unasked.
func startFleet(ctx context.Context, o Options) (*fleet, error) {
	f := &fleet{logf: o.Logf, pods: map[string][]int{}}
	err := f.start(ctx, o)
	if err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context, o Options) error {
	for _, name := range []string{"plain", "m1", "m2"} {
		f.logf("starting cluster %s", name)
		m, err := lab.Start(ctx, lab.Options{Name: name, Dir: filepath.Join(o.Dir, "members", name), Nodes: nodes, Logf: lab.Logf(o.Logf)})
		if err != nil {
			return err
		}
		if f.plain == nil {
			f.plain = m
			continue
		}
		f.members = append(f.members, m)
	}
	if err := f.startSystem(ctx, o); err != nil {
		return err
	}
	for _, m := range f.members {
		f.logf("joining %s", m.Name())
		if err := f.system.Join(ctx, m.Name(), m.Kubeconfig()); err != nil {
			return err
		}
	}
	for _, m := range append([]*lab.Member{f.plain}, f.members...) {
		if err := quiet(m); err != nil {
			return err
		}
	}
	f.divide(o.Pods)
	return f.aim()
}

// startSystem runs the product. The gateway needs certificates that the
// endpoint makes at its first start.
func (f *fleet) startSystem(ctx context.Context, o Options) error {
	opts := lab.SystemOptions{Dir: filepath.Join(o.Dir, "endpoint"), Logf: lab.Logf(o.Logf)}
	f.logf("starting the endpoint")
	var err error
	if f.system, err = lab.StartSystem(ctx, opts); err != nil || o.InProcess {
		return err
	}
	listen, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	if f.metrics, err = freeAddress(ctx); err != nil {
		return err
	}
	f.logf("starting the gateway as a process of its own")
	if err := f.system.StopProcess(endpointName, 10*time.Second); err != nil {
		return err
	}
	opts.Flags = []string{"--gateway=" + listen}
	opts.GatewayFlags = []string{
		"--listen=" + listen, "--metrics-listen=" + f.metrics, "--profiling",
		"--endpoint=https://" + f.system.Address(), "--certificates=" + filepath.Join(f.system.DataDir(), "pki"),
	}
	if f.system, err = lab.StartSystem(ctx, opts); err != nil {
		return err
	}
	return f.aimAtGateway(listen)
}

// aimAtGateway makes the target that speaks to the gateway as the endpoint does.
func (f *fleet) aimAtGateway(listen string) error {
	pki := filepath.Join(f.system.DataDir(), "pki")
	t, err := newTarget("gateway", &rest.Config{Host: "https://" + listen, TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(pki, "gateway-ca.crt"), CertFile: filepath.Join(pki, "gateway-client.crt"),
		KeyFile: filepath.Join(pki, "gateway-client.key"), ServerName: "localhost",
	}}, f.process(gatewayName))
	t.header = http.Header{"X-Remote-User": {"bench"}, "X-Remote-Group": {"system:masters", "system:authenticated"}}
	f.gateway = &t
	return err
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// quiet stops whatever would delete, evict or update Pods.
func quiet(m *lab.Member) error {
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kwok", "lab-kubelet"} {
		pid := memberPID(m, name)
		if pid == 0 {
			return fmt.Errorf("%s of %s: %w", name, m.Name(), errProcessGone)
		}
		if err := syscall.Kill(-pid, syscall.SIGTERM); err != nil {
			return fmt.Errorf("stop %s of %s: %w", name, m.Name(), err)
		}
	}
	return nil
}

// memberPID is 0 when the component does not run.
func memberPID(m *lab.Member, name string) int {
	for _, running := range lab.Running(m.Dir()) {
		if rest, ok := strings.CutPrefix(running, name+" ("); ok {
			pid, err := strconv.Atoi(strings.TrimSuffix(rest, ")"))
			if err == nil {
				return pid
			}
		}
	}
	return 0
}

// divide gives the plain cluster every Pod, and each member a half of every
// namespace.
func (f *fleet) divide(pods int) {
	for i := range pods {
		f.pods[f.plain.Name()] = append(f.pods[f.plain.Name()], i)
		m := f.members[i/namespaces%len(f.members)].Name()
		f.pods[m] = append(f.pods[m], i)
	}
}

func (f *fleet) process(name string) process {
	return process{name: name, pid: func() int { return f.system.PID(name) }}
}

func (f *fleet) aim() error {
	var err error
	if f.reference, err = memberTarget(f.plain, "kube-apiserver"); err != nil {
		return err
	}
	for _, m := range f.members {
		t, err := memberTarget(m, "member "+m.Name())
		if err != nil {
			return err
		}
		f.direct = append(f.direct, t)
	}
	config, err := f.system.RESTConfig()
	if err != nil {
		return err
	}
	processes := []process{f.process(endpointName)}
	if f.gateway != nil {
		processes = []process{f.process(gatewayName), f.process(endpointName)}
	}
	f.product, err = newTarget("endpoint", config, processes...)
	return err
}

func memberTarget(m *lab.Member, name string) (target, error) {
	config, err := m.RESTConfig()
	if err != nil {
		return target{}, err
	}
	return newTarget(name, config, process{name: name, pid: func() int { return memberPID(m, "kube-apiserver") }})
}

// clients are those of the named clusters, for writes.
func (f *fleet) clients() (map[string]kubernetes.Interface, error) {
	out := map[string]kubernetes.Interface{}
	for _, m := range append([]*lab.Member{f.plain}, f.members...) {
		config, err := m.RESTConfig()
		if err != nil {
			return nil, err
		}
		config.QPS = -1
		config.ContentType, config.AcceptContentTypes = protobufType, protobufType+","+jsonType
		if out[m.Name()], err = kubernetes.NewForConfig(config); err != nil {
			return nil, fmt.Errorf("client of %s: %w", m.Name(), err)
		}
	}
	return out, nil
}

// stop ends everything that start began, members last.
func (f *fleet) stop() error {
	var errs []error
	if f.system != nil {
		errs = append(errs, f.system.Stop())
	}
	for _, m := range append([]*lab.Member{f.plain}, f.members...) {
		if m != nil {
			errs = append(errs, m.Stop())
		}
	}
	return errors.Join(errs...)
}
