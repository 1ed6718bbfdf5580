// Package lab runs real Kubernetes clusters on loopback without containers:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler as plain
// processes, and kwok in the part of the nodes, their kubelets and their Pods.
//
//	Start -> artifacts -> certificates, ports, kubeconfigs -> etcd, kube-apiserver
//	      -> controllers, kwok, nodes -> Ready
//
// Everything a member is lies in one folder, so Start on the folder of a member
// that ran before brings the same cluster back (same ports, certificates,
// objects) and starts only what does not run. A Proxy before a member is how
// tests break its network; a System is the product over some members.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
)

// Logf receives progress lines.
type Logf func(format string, args ...any)

// Options say what a member is. The zero value of a field is its default.
type Options struct {
	Name string // default "m1"
	Dir  string // required: everything of this member lies here

	Nodes       int // kwok nodes fake-0 ...; default 3, NoNodes for none
	PodsPerNode int // default 110

	Metrics bool // metrics-server behind metrics.k8s.io

	// QPS and Burst of controller manager and scheduler; default 100 and 200.
	QPS, Burst int

	// AuditPolicy replaces the default policy (YAML): Metadata of everything,
	// RequestResponse of writes by the product's identities.
	AuditPolicy string
	// Kubernetes is an older version of the control plane, one of
	// artifacts.OldKubernetesVersions; empty for artifacts.KubernetesVersion.
	Kubernetes string
	// APIServerFlags are added to those of the kube-apiserver.
	APIServerFlags []string

	// Daemon leaves the processes running when this process ends. Otherwise
	// they are killed with it.
	Daemon bool

	Logf Logf // default: silent
}

// NoNodes is the value of Options.Nodes for a cluster without nodes.
const NoNodes = -1

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("lab: Options.Dir is empty")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("lab: %w", err)
	}
	o.Dir = dir
	if o.Name == "" {
		o.Name = "m1"
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.PodsPerNode == 0 {
		o.PodsPerNode = 110
	}
	if o.QPS == 0 {
		o.QPS = 100
	}
	if o.Burst == 0 {
		o.Burst = 2 * o.QPS
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o, nil
}

// Member is one running cluster.
type Member struct {
	opts  Options
	set   artifacts.Set
	ports Ports
	// kubelet is the binary of the Pods' streams.
	kubelet string
	// programs is the folder of kube-apiserver and its like.
	programs string

	pki pki
	group

	mu     sync.Mutex
	config *rest.Config
}

// state is what a later process needs to know of a member: member.json.
type state struct {
	Name  string `json:"name"`
	Ports Ports  `json:"ports"`
}

// Start brings a member up and returns when it is Ready: the API answers, the
// nodes are Ready and Pods can be created in the namespace default.
func Start(ctx context.Context, opts Options) (*Member, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	set, err := artifacts.Ensure(ctx, opts.Metrics, artifacts.Logf(opts.Logf))
	if err != nil {
		return nil, err
	}
	kubelet, err := set.EnsureKubelet(ctx, artifacts.Logf(opts.Logf))
	if err != nil {
		return nil, err
	}
	programs := set.Dir
	if opts.Kubernetes != "" {
		if programs, err = set.EnsureOldKubernetes(ctx, opts.Kubernetes, artifacts.Logf(opts.Logf)); err != nil {
			return nil, err
		}
	}
	m := &Member{
		opts: opts, set: set, kubelet: kubelet, programs: programs, pki: pki{filepath.Join(opts.Dir, "pki")},
		group: group{label: "member " + opts.Name, dir: opts.Dir, daemon: opts.Daemon, logf: opts.Logf},
	}
	for attempt := 1; ; attempt++ {
		err = m.start(ctx)
		if err == nil {
			return m, nil
		}
		// A port can be lost between its choice and its use.
		retry := attempt < 3 && ctx.Err() == nil && strings.Contains(err.Error(), "address already in use")
		if !opts.Daemon || retry {
			err = errors.Join(err, m.Stop())
		}
		if !retry {
			return nil, fmt.Errorf("member %s: %w", opts.Name, err)
		}
		opts.Logf("member %s: a port was taken while starting; trying others", opts.Name)
		m.ports = Ports{}
		if err := os.Remove(m.statePath()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("member %s: %w", opts.Name, err)
		}
	}
}

func (m *Member) start(ctx context.Context) error {
	if err := m.prepare(); err != nil {
		return err
	}
	if !m.components["kube-apiserver"].alive() {
		warnInotify(m.opts.Logf)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := m.components[name].start(); err != nil {
			return err
		}
	}
	client, err := m.Client()
	if err != nil {
		return err
	}
	if err := m.waitAPI(ctx, client); err != nil {
		return err
	}
	for _, name := range m.order {
		if err := m.components[name].start(); err != nil {
			return err
		}
	}
	if err := m.createNodes(ctx, client); err != nil {
		return err
	}
	if err := m.createStorageClass(ctx, client); err != nil {
		return err
	}
	if m.opts.Metrics {
		if err := m.registerMetrics(ctx, client); err != nil {
			return err
		}
	}
	return m.waitReady(ctx, client)
}

// prepare writes everything that the processes read.
func (m *Member) prepare() error {
	if err := os.MkdirAll(m.opts.Dir, 0o755); err != nil {
		return err
	}
	st, err := m.readState()
	if err != nil {
		return err
	}
	if st.Name != "" && st.Name != m.opts.Name {
		return fmt.Errorf("the folder %s belongs to member %q; choose another or remove it", m.opts.Dir, st.Name)
	}
	m.ports = st.Ports
	running := func(name string) bool {
		_, ok := liveRecord(filepath.Join(m.opts.Dir, "pids", name+".json"))
		return ok
	}
	if err := m.ports.choose(running, m.opts.Logf); err != nil {
		return err
	}
	if err := m.writeState(); err != nil {
		return err
	}
	if err := m.pki.ensure(); err != nil {
		return err
	}
	if err := m.writeConfigs(); err != nil {
		return err
	}
	m.defineComponents()
	return nil
}

func (m *Member) statePath() string { return filepath.Join(m.opts.Dir, "member.json") }

func (m *Member) readState() (state, error) {
	var st state
	data, err := os.ReadFile(m.statePath())
	if errors.Is(err, os.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, fmt.Errorf("state: %w", err)
	}
	if err := json.Unmarshal(data, &st); err != nil {
		return st, fmt.Errorf("state %s is damaged (remove the folder to start over): %w", m.statePath(), err)
	}
	return st, nil
}

func (m *Member) writeState() error {
	data, err := json.MarshalIndent(state{Name: m.opts.Name, Ports: m.ports}, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return writeFile(m.statePath(), append(data, '\n'), 0o644)
}

func (m *Member) waitAPI(ctx context.Context, client kubernetes.Interface) error {
	return m.poll(ctx, "the API", "kube-apiserver", func(ctx context.Context) error {
		return failedChecks(client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error())
	})
}

func (m *Member) waitReady(ctx context.Context, client kubernetes.Interface) error {
	err := m.poll(ctx, "the service account of namespace default", "kube-controller-manager", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	for i := range max(0, m.opts.Nodes) {
		err := m.poll(ctx, "node "+nodeName(i), "kwok", func(ctx context.Context) error {
			return nodeReady(client.CoreV1().Nodes().Get(ctx, nodeName(i), metav1.GetOptions{}))
		})
		if err != nil {
			return err
		}
	}
	return m.poll(ctx, "the kubelet", "lab-kubelet", func(ctx context.Context) error {
		return m.leadNodes(ctx, client)
	})
}

func nodeReady(node *corev1.Node, err error) error {
	if err != nil {
		return err
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return errors.New("tainted as not ready")
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("no Ready condition")
}

func (m *Member) createNodes(ctx context.Context, client kubernetes.Interface) error {
	for i := range max(0, m.opts.Nodes) {
		_, err := client.CoreV1().Nodes().Create(ctx, node(i, m.opts.PodsPerNode), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", nodeName(i), err)
		}
	}
	return nil
}

// createStorageClass makes the default class, whose volumes kwok provisions.
func (m *Member) createStorageClass(ctx context.Context, client kubernetes.Interface) error {
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "kwok-volume", // the name that kwok's stages look for
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: "kwok.x-k8s.io/volume",
	}
	_, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the storage class: %w", err)
	}
	return nil
}

// Name of the member.
func (m *Member) Name() string { return m.opts.Name }

// Dir is the member's folder.
func (m *Member) Dir() string { return m.opts.Dir }

// Artifacts are the binaries that the member runs, kubectl among them.
func (m *Member) Artifacts() artifacts.Set { return m.set }

// Kubeconfig is the path of the admin's kubeconfig.
func (m *Member) Kubeconfig() string { return filepath.Join(m.opts.Dir, "kubeconfig") }

// AuditLog is the path of the kube-apiserver's audit log, one JSON event a line.
func (m *Member) AuditLog() string { return filepath.Join(m.opts.Dir, "logs", "audit.log") }

// LogPath is the path of a component's log ("kube-apiserver", "etcd", ...).
func (m *Member) LogPath(name string) string {
	return filepath.Join(m.opts.Dir, "logs", name+".log")
}

// Address is HOST:PORT of the kube-apiserver.
func (m *Member) Address() string { return fmt.Sprintf("127.0.0.1:%d", m.ports.APIServer) }

// RESTConfig returns a copy of the admin's client configuration, without a
// client-side rate limit.
func (m *Member) RESTConfig() (*rest.Config, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.config == nil {
		config, err := clientcmd.BuildConfigFromFlags("", m.Kubeconfig())
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", m.opts.Name, err)
		}
		config.QPS = -1
		m.config = config
	}
	return rest.CopyConfig(m.config), nil
}

// Client returns a client with the admin's rights.
func (m *Member) Client() (kubernetes.Interface, error) {
	config, err := m.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Freeze stops the kube-apiserver in its tracks: connections stay open, nothing
// answers.
func (m *Member) Freeze() error { return m.components["kube-apiserver"].signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (m *Member) Thaw() error { return m.components["kube-apiserver"].signal(syscall.SIGCONT) }

// Kill ends the kube-apiserver with SIGKILL.
func (m *Member) Kill() error { return m.components["kube-apiserver"].stop(0) }

// Restart starts the kube-apiserver again, gracefully stopping one that runs,
// and waits until the API answers.
func (m *Member) Restart(ctx context.Context) error {
	if err := m.components["kube-apiserver"].stop(stopGrace); err != nil {
		return err
	}
	if err := m.components["kube-apiserver"].start(); err != nil {
		return err
	}
	client, err := m.Client()
	if err != nil {
		return err
	}
	return m.waitAPI(ctx, client)
}

// Stop ends the member's processes; its folder stays and Start revives it.
func (m *Member) Stop() error { return StopDir(m.opts.Dir) }
