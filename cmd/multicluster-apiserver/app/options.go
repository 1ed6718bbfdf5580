package app

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/isthmus-dev/isthmus/pkg/cache/membercache"
	"github.com/isthmus-dev/isthmus/pkg/federation/breaker"
	"github.com/isthmus-dev/isthmus/pkg/registry/admission"
	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
)

// DefaultDataDir holds certificates, the admin kubeconfig and the embedded etcd.
const DefaultDataDir = "/var/lib/isthmus"

// Options are the flags of the server: ours, and those inherited from
// kube-apiserver, whose defaults we change so that no flag is needed.
type Options struct {
	DataDir         string
	TLSSANs         []string
	Gateways        []string
	MemberResources []string
	DefaultPolicy   bool
	Breaker         breaker.Limits
	// AuthorizeClusters limits permissions on member objects to clusters.
	AuthorizeClusters bool
	// CompareEvery is how often the member cache is compared with every member.
	CompareEvery time.Duration

	Kube *kubeapiserver.ServerRunOptions

	// finalizer marks templates as they are created.
	finalizer admission.TemplateFinalizer
	// embedded is set when the etcd inside this process is used.
	embedded bool
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	o := &Options{DataDir: DefaultDataDir, DefaultPolicy: true, Breaker: breaker.DefaultLimits(), CompareEvery: membercache.DefaultCompareEvery, Kube: kubeapiserver.NewServerRunOptions()}
	k := o.Kube
	k.ServiceClusterIPRanges = "10.96.0.0/12"
	k.EndpointReconcilerType = "none"
	k.AllowPrivileged = true
	k.Authorization.Modes = []string{"RBAC"}
	k.Authentication.ServiceAccounts.Issuers = []string{"https://kubernetes.default.svc.cluster.local"}
	k.Authentication.Anonymous.Allow = true
	// Its finalizer is removed by a controller that needs Pods; in the
	// members the member's own plugin and controller do this.
	k.Admission.GenericAdmission.DisablePlugins = []string{"StorageObjectInUseProtection"}
	admission.RegisterReservedLabel(k.Admission.GenericAdmission.Plugins)
	admission.RegisterCustomization(k.Admission.GenericAdmission.Plugins)
	admission.RegisterPolicies(k.Admission.GenericAdmission.Plugins)
	admission.RegisterNamespaceLimits(k.Admission.GenericAdmission.Plugins)
	admission.RegisterDeletionProtection(k.Admission.GenericAdmission.Plugins)
	o.finalizer.Register(k.Admission.GenericAdmission.Plugins)
	k.Admission.GenericAdmission.RecommendedPluginOrder = append(k.Admission.GenericAdmission.RecommendedPluginOrder,
		admission.TemplateFinalizerPlugin, admission.PoliciesPlugin, admission.DeletionProtectionPlugin, admission.ReservedLabelPlugin,
		admission.CustomizationPlugin, admission.NamespaceLimitsPlugin)
	return o
}

// Flags groups our own flags first and keeps the inherited ones usable.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var own cliflag.NamedFlagSets
	o.addOwn(own.FlagSet("isthmus"))
	inherited := o.Kube.Flags()
	for _, name := range inherited.Order {
		own.FlagSet(name).AddFlagSet(inherited.FlagSets[name])
	}
	return own
}

func (o *Options) addOwn(fs *pflag.FlagSet) {
	fs.StringVar(&o.DataDir, "data-dir", o.DataDir,
		"Folder for certificates, the admin kubeconfig and, unless --etcd-servers is given, the embedded etcd. Made at first start.")
	fs.StringSliceVar(&o.TLSSANs, "tls-san", nil,
		"Further host names or addresses that the endpoint's own serving certificate must cover.")
	fs.StringSliceVar(&o.Gateways, "gateway", nil,
		"Addresses (host:port) of cluster-gateway processes. Without it the member cache runs inside this process.")
	fs.StringSliceVar(&o.MemberResources, "member-resources", nil,
		"Further kinds to cache from the members, as RESOURCE.VERSION.GROUP=Kind, for instance widgets.v1.example.com=Widget; "+
			"append :cluster for a kind without namespaces, :dual for one of which the control plane holds objects too, "+
			"and :off for one that is cached by default and is not to be. docs/kinds.md lists the defaults.")
	fs.BoolVar(&o.AuthorizeClusters, "authorize-clusters", false,
		"Require, for every request on objects of a member, the request's verb on clusters/access (cluster.karmada.io) with the cluster's name, beside the permission on the objects. "+
			"With --gateway, give cluster-gateway the same flag.")
	fs.BoolVar(&o.DefaultPolicy, "default-policy", o.DefaultPolicy,
		"Install the default ClusterPropagationPolicies, so that workloads run without any policy. Written only where missing.")
	fs.DurationVar(&o.CompareEvery, "compare-every", o.CompareEvery,
		"How long it takes until the whole member cache was compared with the members once more. With --gateway, cluster-gateway has the flag.")
	addBreakerFlags(fs, &o.Breaker)
}

// Complete makes certificates and fills what the inherited flags left open.
func (o *Options) Complete() (pki.Files, error) {
	limits, err := completeBreaker(o.Breaker)
	if err != nil {
		return pki.Files{}, err
	}
	o.Breaker = limits
	if o.CompareEvery <= 0 {
		return pki.Files{}, fmt.Errorf("--compare-every %s must be above 0", o.CompareEvery)
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return pki.Files{}, fmt.Errorf("--data-dir %q: %w", o.DataDir, err)
	}
	o.DataDir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return pki.Files{}, fmt.Errorf("--data-dir %s cannot be made (%w): choose a folder that this user may write", dir, err)
	}
	if err := checkFolder(dir); err != nil {
		return pki.Files{}, err
	}
	files, err := pki.Ensure(filepath.Join(dir, "pki"), o.hosts())
	if err != nil {
		return files, err
	}
	o.applyPKI(files)
	return files, nil
}

// hosts are the names that clients may use for the endpoint.
func (o *Options) hosts() []string {
	hosts := append([]string(nil), o.TLSSANs...)
	if ip := o.Kube.SecureServing.BindAddress; ip != nil && !ip.IsUnspecified() {
		hosts = append(hosts, ip.String())
	}
	if ip := o.Kube.GenericServerRunOptions.AdvertiseAddress; ip != nil {
		hosts = append(hosts, ip.String())
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, strings.ToLower(name))
	}
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				hosts = append(hosts, n.IP.String())
			}
		}
	}
	return append(hosts, "10.96.0.1")
}

func (o *Options) applyPKI(f pki.Files) {
	k := o.Kube
	if k.SecureServing.ServerCert.CertKey.CertFile == "" {
		k.SecureServing.ServerCert.CertKey.CertFile = f.Cert(pki.Server)
		k.SecureServing.ServerCert.CertKey.KeyFile = f.Key(pki.Server)
	}
	if k.Authentication.ClientCert.ClientCA == "" {
		k.Authentication.ClientCert.ClientCA = f.Cert(pki.ClientCA)
	}
	if k.Authentication.RequestHeader.ClientCAFile == "" {
		k.Authentication.RequestHeader.ClientCAFile = f.Cert(pki.FrontProxyCA)
		k.Authentication.RequestHeader.AllowedNames = []string{"front-proxy-client"}
		k.Authentication.RequestHeader.UsernameHeaders = []string{"X-Remote-User"}
		k.Authentication.RequestHeader.GroupHeaders = []string{"X-Remote-Group"}
		k.Authentication.RequestHeader.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	}
	if k.ProxyClientCertFile == "" {
		k.ProxyClientCertFile, k.ProxyClientKeyFile = f.Cert(pki.FrontProxyClient), f.Key(pki.FrontProxyClient)
	}
	if k.ServiceAccountSigningKeyFile == "" {
		k.ServiceAccountSigningKeyFile = f.ServiceAccountKey()
	}
	if len(k.Authentication.ServiceAccounts.KeyFiles) == 0 {
		k.Authentication.ServiceAccounts.KeyFiles = []string{f.ServiceAccountPub()}
	}
}

// useEtcd points the storage at the embedded store.
func (o *Options) useEtcd(endpoint string, f pki.Files) {
	o.embedded = true
	t := &o.Kube.Etcd.StorageConfig.Transport
	t.ServerList = []string{endpoint}
	t.CertFile, t.KeyFile, t.TrustedCAFile = f.Cert(pki.EtcdClient), f.Key(pki.EtcdClient), f.Cert(pki.EtcdCA)
}
