// Package app boots cluster-gateway:
//
//	Options -> certificates -> membership (reading only) -> fleet
//	        -> mutual TLS server for multicluster-apiserver
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/isthmus-dev/isthmus/pkg/cache/membercache"
	"github.com/isthmus-dev/isthmus/pkg/registry/buildversion"
	"github.com/isthmus-dev/isthmus/pkg/registry/fleet"
	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
)

const longHelp = `The member cache and the router to the members as a process of its own.

multicluster-apiserver --gateway HOST:PORT forwards every request on Pods,
Events, Nodes and other member kinds to it, over mutual TLS. It watches each
member once, keeps the objects as bytes, and serves LIST, GET and WATCH merged
over all members; logs, exec and writes go on to the member that owns the object.

The certificates are those that multicluster-apiserver makes below
DATA_DIR/pki at its first start. On another host, copy these files:
  ca.crt  gateway-ca.crt  gateway-server.crt  gateway-server.key
  gateway-client.crt  gateway-client.key`

const examples = `  # Beside the endpoint, on the same host
  multicluster-apiserver --data-dir ./isthmus --gateway 127.0.0.1:7443
  cluster-gateway --certificates ./isthmus/pki --endpoint https://127.0.0.1:6443 --listen 127.0.0.1:7443

  # Two of them, of which one takes over when the other ends
  multicluster-apiserver --gateway gateway-a:7443,gateway-b:7443
  cluster-gateway --listen 0.0.0.0:7443 --advertise gateway-a:7443 ...
  cluster-gateway --listen 0.0.0.0:7443 --advertise gateway-b:7443 ...`

// Options are the flags.
type Options struct {
	Listen          string
	MetricsListen   string
	Endpoint        string
	Advertise       string
	Certificates    string
	DataDir         string
	MemberResources []string
	Profiling       bool
	// CompareEvery is how often the cache is compared with every member.
	CompareEvery time.Duration
	// AuthorizeClusters limits permissions on member objects to clusters.
	AuthorizeClusters bool
	Logs              *logs.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Listen:        "127.0.0.1:7443",
		MetricsListen: "127.0.0.1:7444",
		Endpoint:      "https://127.0.0.1:6443",
		Certificates:  "/var/lib/isthmus/pki",
		CompareEvery:  membercache.DefaultCompareEvery,
		Logs:          logs.NewOptions(),
	}
}

// NewCommand is the root command.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:          "cluster-gateway",
		Short:        "Caches member objects and routes requests to members",
		Long:         longHelp,
		Example:      examples,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			if err := logsapi.ValidateAndApply(o.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return Run(genericapiserver.SetupSignalContext(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Listen, "listen", o.Listen, "Address (host:port) that multicluster-apiserver reaches this gateway at.")
	fs.StringVar(&o.MetricsListen, "metrics-listen", o.MetricsListen, "Address of /metrics, /healthz and /readyz, without TLS; empty for none.")
	fs.StringVar(&o.Endpoint, "endpoint", o.Endpoint, "URL of multicluster-apiserver.")
	fs.StringVar(&o.Advertise, "advertise", "", "Address (host:port) at which the other gateways reach this one; give it where several run. One of them then reads the members, by a Lease, and the others follow it. Empty for a gateway that is alone.")
	fs.StringVar(&o.Certificates, "certificates", o.Certificates, "Folder with the certificates that multicluster-apiserver made.")
	fs.StringVar(&o.DataDir, "data-dir", o.DataDir, "Folder that keeps the cache over a restart, for this process alone; empty for gateway-PORT beside the --certificates, none to keep nothing.")
	fs.StringSliceVar(&o.MemberResources, "member-resources", nil, "Further kinds to cache, as RESOURCE.VERSION.GROUP=Kind[:cluster][:dual][:off]; the same as multicluster-apiserver's flag.")
	fs.BoolVar(&o.AuthorizeClusters, "authorize-clusters", false, "Limit permissions to clusters; the same as multicluster-apiserver's flag.")
	fs.DurationVar(&o.CompareEvery, "compare-every", o.CompareEvery, "How long it takes until the whole cache was compared with the members once more; the same as multicluster-apiserver's flag.")
	fs.BoolVar(&o.Profiling, "profiling", false, "Serve /debug/pprof at --metrics-listen to whoever can reach that address.")
	logsapi.AddFlags(o.Logs, fs)
	cmd.Version = buildversion.String(cmd.Name())
	cmd.SetVersionTemplate("{{.Version}}\n")
	fs.Bool("version", false, "Print the version and quit.")
	return cmd
}

// Validate says everything that is wrong, not only the first.
func (o *Options) Validate() error {
	var errs []error
	for flag, address := range map[string]string{"--listen": o.Listen, "--metrics-listen": o.MetricsListen} {
		if address == "" && flag != "--listen" {
			continue
		}
		if err := checkListen(address); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", flag, address, err))
		}
	}
	if o.Advertise != "" {
		// Others reach it, by another way it may be: it is not listened on here.
		if host, port, err := net.SplitHostPort(o.Advertise); err != nil || host == "" || port == "" {
			errs = append(errs, fmt.Errorf("--advertise %q must be host:port", o.Advertise))
		}
	}
	if _, err := fleet.ParseResources(o.MemberResources); err != nil {
		errs = append(errs, err)
	}
	for _, name := range []string{"ca.crt", "gateway-ca.crt", "gateway-server.crt", "gateway-server.key", "gateway-client.crt", "gateway-client.key"} {
		if _, err := os.Stat(filepath.Join(o.Certificates, name)); err != nil {
			errs = append(errs, fmt.Errorf("--certificates %s: %s cannot be read (%w): start multicluster-apiserver once, or copy its pki folder", o.Certificates, name, err))
		}
	}
	if o.CompareEvery <= 0 {
		errs = append(errs, fmt.Errorf("--compare-every %s must be above 0", o.CompareEvery))
	}
	return errors.Join(errs...)
}

// checkListen wants an address that is free.
func checkListen(address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("must be host:port: %w", err)
	}
	l, err := net.Listen("tcp", address) //nolint:noctx // it is closed at once
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		return errors.New("another process listens there: stop it, or choose another port")
	}
	return fmt.Errorf("cannot be used: %w", err)
}

// cacheDir is where the cache is kept over a restart, empty for nowhere.
func (o *Options) cacheDir() string {
	switch o.DataDir {
	case "none":
		return ""
	case "":
		_, port, _ := net.SplitHostPort(o.Listen)
		return filepath.Join(filepath.Dir(filepath.Clean(o.Certificates)), "gateway-"+port)
	}
	return o.DataDir
}

func (o *Options) files() pki.Files { return pki.Files{Dir: o.Certificates} }

func init() {
	if err := logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Run serves until ctx ends.
func Run(ctx context.Context, o *Options) error {
	if err := fleet.TunePings(); err != nil {
		return err
	}
	s, err := newServer(ctx, o)
	if err != nil {
		return err
	}
	return s.run(ctx)
}
