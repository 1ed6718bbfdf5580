package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
)

// ErrNoProduct says that multicluster-apiserver has no sources to build from.
var ErrNoProduct = errors.New("cmd/multicluster-apiserver does not exist in this tree")

// SystemOptions say how the product is run.
type SystemOptions struct {
	Dir string // required: state, kubeconfig and logs

	// Flags are added to those of multicluster-apiserver.
	Flags []string
	// GatewayFlags, when not nil, run cluster-gateway as a process of its own
	// with these flags; Flags must then lead the endpoint to it.
	GatewayFlags []string
	// MoreGateways are the flags of further ones, which are named
	// "cluster-gateway-2" and so on.
	MoreGateways [][]string
	// Env is added to the environment of all.
	Env []string

	// Port of the endpoint; 0 chooses one.
	Port int
	// Binary replaces the one built from the working tree.
	Binary string

	Daemon bool
	Logf   Logf
}

// System is the product over some members: the endpoint and, if asked for, a
// separate gateway.
type System struct {
	opts SystemOptions
	set  artifacts.Set
	port int
	group
}

const endpointName = "multicluster-apiserver"

// StartSystem builds the product from the working tree, starts it and returns
// when /readyz of the endpoint is green. On the folder of an earlier System it
// brings that one back, restarted when its program or flags changed.
func StartSystem(ctx context.Context, opts SystemOptions) (*System, error) {
	if opts.Dir == "" {
		return nil, errors.New("lab: SystemOptions.Dir is empty")
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	opts.Dir = dir
	if opts.Logf == nil {
		opts.Logf = func(string, ...any) {}
	}
	set, err := artifacts.Locate()
	if err != nil {
		return nil, err
	}
	if opts.Binary == "" {
		programs := []string{endpointName}
		if opts.GatewayFlags != nil {
			programs = append(programs, "cluster-gateway")
		}
		if err := set.EnsureProduct(ctx, artifacts.Logf(opts.Logf), programs...); err != nil {
			return nil, err
		}
		if !set.HasProduct(endpointName) {
			return nil, ErrNoProduct
		}
		opts.Binary = set.Product(endpointName)
	}
	s := &System{opts: opts, set: set, group: group{label: "the endpoint", dir: dir, daemon: opts.Daemon, logf: opts.Logf}}
	if err := s.start(ctx); err != nil {
		if !opts.Daemon {
			err = errors.Join(err, s.Stop())
		}
		return nil, err
	}
	return s, nil
}

func (s *System) start(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("the endpoint: %w", err)
	}
	if err := s.choosePort(); err != nil {
		return err
	}
	s.reset()
	s.add(endpointName, s.opts.Binary, append([]string{
		"--data-dir=" + s.DataDir(), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", s.port),
	}, s.opts.Flags...))
	if s.opts.GatewayFlags != nil {
		s.add("cluster-gateway", s.set.Product("cluster-gateway"), s.opts.GatewayFlags)
	}
	for i, flags := range s.opts.MoreGateways {
		s.add(fmt.Sprintf("cluster-gateway-%d", i+2), s.set.Product("cluster-gateway"), flags)
	}
	for _, c := range s.components {
		c.env = s.opts.Env
	}
	for _, name := range s.order {
		if err := s.components[name].start(); err != nil {
			return err
		}
	}
	return s.waitReady(ctx)
}

// choosePort keeps the port of an earlier run unless a stranger has it now.
func (s *System) choosePort() error {
	path := filepath.Join(s.dir, "endpoint.json")
	var st struct {
		Port int `json:"port"`
	}
	if data, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(data, &st); err != nil {
			s.logf("%s is damaged; choosing another port", path)
		}
	}
	_, ours := liveRecord(filepath.Join(s.dir, "pids", endpointName+".json"))
	if s.opts.Port != 0 {
		st.Port = s.opts.Port
	} else if st.Port == 0 || !ours && !portComesFree(st.Port) {
		port, err := freePort(map[int]bool{})
		if err != nil {
			return fmt.Errorf("the endpoint: %w", err)
		}
		if st.Port != 0 {
			s.logf("port %d of the endpoint is taken by another program; using %d", st.Port, port)
		}
		st.Port = port
	}
	s.port = st.Port
	data, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("the endpoint: %w", err)
	}
	return writeFile(path, append(data, '\n'), 0o644)
}

func (s *System) waitReady(ctx context.Context) error {
	return s.poll(ctx, "/readyz", endpointName, func(ctx context.Context) error {
		client, err := s.Client()
		if err != nil {
			return err
		}
		// The kubeconfig of an earlier run leads elsewhere until it is rewritten.
		if config, err := s.RESTConfig(); err != nil || !strings.HasSuffix(config.Host, fmt.Sprintf(":%d", s.port)) {
			return errors.Join(errors.New("the kubeconfig is not written yet"), err)
		}
		return failedChecks(client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error())
	})
}

var failedCheck = regexp.MustCompile(`\[-\]([\w/.-]+)`)

// failedChecks shortens the answer of /readyz to the checks that fail.
func failedChecks(err error) error {
	if err == nil {
		return nil
	}
	var names []string
	for _, match := range failedCheck.FindAllStringSubmatch(err.Error(), -1) {
		names = append(names, match[1])
	}
	if len(names) == 0 {
		return err
	}
	return errors.New("failing checks: " + strings.Join(names, ", "))
}

// DataDir is the endpoint's --data-dir.
func (s *System) DataDir() string { return filepath.Join(s.dir, "data") }

// Dir holds the data folder, logs and pids.
func (s *System) Dir() string { return s.dir }

// Kubeconfig is the path of the administrator's kubeconfig.
func (s *System) Kubeconfig() string { return filepath.Join(s.DataDir(), "admin.kubeconfig") }

// Address is HOST:PORT of the endpoint.
func (s *System) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// LogPath is the log of "multicluster-apiserver" or "cluster-gateway".
func (s *System) LogPath(name string) string { return filepath.Join(s.dir, "logs", name+".log") }

// PID of "multicluster-apiserver" or "cluster-gateway", 0 when it does not run.
func (s *System) PID(name string) int {
	if c, ok := s.components[name]; ok {
		if rec, alive := c.live(); alive {
			return rec.PID
		}
	}
	return 0
}

// RESTConfig reads the administrator's kubeconfig; it has no rate limit.
func (s *System) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("the endpoint: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// Client returns a client with the administrator's rights.
func (s *System) Client() (kubernetes.Interface, error) {
	config, err := s.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Command runs a subcommand of multicluster-apiserver and returns its output.
func (s *System) Command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.opts.Binary, args...)
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+s.Kubeconfig()), s.opts.Env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s", endpointName, strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String(), nil
}

// Join makes a cluster a member, given an administrator's kubeconfig of it.
func (s *System) Join(ctx context.Context, name, memberKubeconfig string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err := s.Command(ctx, "join", name, "--member-kubeconfig", memberKubeconfig, "--kubeconfig", s.Kubeconfig())
	return err
}

// Unjoin ends a membership.
func (s *System) Unjoin(ctx context.Context, name string, flags ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err := s.Command(ctx, append([]string{"unjoin", name, "--kubeconfig", s.Kubeconfig()}, flags...)...)
	return err
}

// Kill ends a process with SIGKILL ("multicluster-apiserver", "cluster-gateway").
func (s *System) Kill(name string) error {
	c, ok := s.components[name]
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrNotRunning)
	}
	return c.stop(0)
}

// Signal sends a signal to a process of the system.
func (s *System) Signal(name string, sig syscall.Signal) error {
	c, ok := s.components[name]
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrNotRunning)
	}
	return c.signal(sig)
}

// StopProcess asks a process to end and waits for it, at most as long as given.
func (s *System) StopProcess(name string, grace time.Duration) error {
	c, ok := s.components[name]
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrNotRunning)
	}
	return c.stop(grace)
}

// Restart starts whatever does not run and waits for /readyz.
func (s *System) Restart(ctx context.Context) error { return s.start(ctx) }

// Stop ends the processes; the folder stays.
func (s *System) Stop() error { return StopDir(s.dir) }
