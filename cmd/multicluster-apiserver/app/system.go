package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache/scavenge"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
	"github.com/isthmus-dev/isthmus/pkg/federation/apis/crds"
	"github.com/isthmus-dev/isthmus/pkg/federation/defaults"
	"github.com/isthmus-dev/isthmus/pkg/federation/engine"
	"github.com/isthmus-dev/isthmus/pkg/federation/federatedquota"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
	"github.com/isthmus-dev/isthmus/pkg/federation/rebalance"
	"github.com/isthmus-dev/isthmus/pkg/federation/taints"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
	"github.com/isthmus-dev/isthmus/pkg/proxy/remote"
	"github.com/isthmus-dev/isthmus/pkg/registry/admission"
	"github.com/isthmus-dev/isthmus/pkg/registry/controllers"
	"github.com/isthmus-dev/isthmus/pkg/registry/fleet"
	"github.com/isthmus-dev/isthmus/pkg/registry/install"
	"github.com/isthmus-dev/isthmus/pkg/registry/memberkinds"
	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
	"github.com/isthmus-dev/isthmus/pkg/registry/seats"
	"github.com/isthmus-dev/isthmus/pkg/registry/settle"
)

// system is what runs beside the chain: installation, controllers, membership,
// the member cache and the engine, and the router that joins them to the chain.
type system struct {
	options    *Options
	router     *proxy.Router
	loopback   *rest.Config
	membership *membership.Controller
	fleet      *fleet.Fleet   // nil with separate gateways
	gateways   *remote.Client // nil without
	leadership leadership
	settler    *settle.Settler
	installed  atomic.Bool
	// memberResources are the kinds of --member-resources.
	memberResources []fleet.Resource
}

func newSystem(ctx context.Context, o *Options, files pki.Files, config *kubeapiserver.Config) (*system, error) {
	generic := config.KubeAPIs.ControlPlane.Generic
	loopback := rest.CopyConfig(generic.LoopbackClientConfig)
	loopback.QPS = -1 // priority and fairness guards the control plane
	s := &system{options: o, loopback: loopback}
	s.leadership.alone = o.embedded
	s.leadership.leads.Store(o.embedded)
	var err error
	s.membership, err = membership.New(membership.Options{ControlPlane: loopback, Leads: s.leadership.Leads})
	if err != nil {
		return nil, fmt.Errorf("set up membership: %w", err)
	}
	if s.memberResources, err = fleet.ParseResources(o.MemberResources); err != nil {
		return nil, err
	}
	if len(o.Gateways) > 0 {
		err = s.useGateways(files)
	} else {
		err = s.useFleet(ctx, generic.Authorization.Authorizer)
	}
	if err != nil {
		return nil, err
	}
	if s.fleet != nil {
		registerMetrics.Do(func() { legacyregistry.RawMustRegister(s.fleet.Collectors()...) })
		generic.StorageObjectCountTracker = &seats.Tracker{
			StorageObjectCountTracker: generic.StorageObjectCountTracker,
			Count:                     seats.CountsOf(s.fleet.Cache().Collections),
		}
		config.Aggregator.GenericConfig.StorageObjectCountTracker = generic.StorageObjectCountTracker
	}
	routed, err := admission.NewRouted(generic, config.KubeAPIs.ControlPlane.VersionedInformers, s.router.Gateway)
	if err != nil {
		return nil, err
	}
	s.router.Admit = routed.Admit
	if utilfeature.DefaultFeatureGate.Enabled(features.AuthorizePodWebsocketUpgradeCreatePermission) {
		s.router.Authorizer = generic.Authorization.Authorizer
	}
	private, err := metadata.NewForConfig(loopback)
	if err != nil {
		return nil, fmt.Errorf("client that waits for writes: %w", err)
	}
	s.settler = settle.New(private)
	s.router.Settler = s.settler
	return s, nil
}

// registerMetrics: a process has one registry, and one system.
var registerMetrics sync.Once

// useFleet runs the member cache inside this process.
func (s *system) useFleet(ctx context.Context, rights authorizer.Authorizer) error {
	if !s.options.AuthorizeClusters {
		rights = nil
	}
	reservations, err := s.options.reservations()
	if err != nil {
		return err
	}
	numbers, err := sequence.Open(ctx, clock.RealClock{}, reservations, logReservationFailure)
	if err != nil {
		return fmt.Errorf("open the sequence of resourceVersions: %w", err)
	}
	s.fleet, err = fleet.New(fleet.Config{
		ControlPlane: s.loopback, Membership: s.membership, Clock: numbers, Resources: s.memberResources, Authorizer: rights,
		Dir: filepath.Join(s.options.DataDir, "member-cache"), CompareEvery: s.options.CompareEvery,
	})
	if err != nil {
		return err
	}
	s.router = &proxy.Router{Kinds: s.fleet.Kinds(), Gateway: s.fleet.Gateway()}
	return nil
}

// useGateways forwards to cluster-gateway processes.
func (s *system) useGateways(files pki.Files) error {
	certificate, err := tls.LoadX509KeyPair(files.Cert(pki.GatewayClient), files.Key(pki.GatewayClient))
	if err != nil {
		return fmt.Errorf("read the certificate towards the gateways: %w", err)
	}
	authority, err := pool(files.Cert(pki.GatewayCA))
	if err != nil {
		return err
	}
	client, err := remote.NewClient(s.options.Gateways, certificate, authority)
	if err != nil {
		return fmt.Errorf("--gateway: %w", err)
	}
	s.gateways = client
	s.router = &proxy.Router{Kinds: proxy.NewKinds(fleet.Classes(s.memberResources)), Gateway: client}
	return nil
}

// run works until ctx ends or a part fails.
func (s *system) run(ctx context.Context, servingCA []byte) error {
	if err := s.install(ctx); err != nil {
		return err
	}
	s.installed.Store(true)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.membership.Run(ctx) })
	if s.fleet != nil {
		group.Go(func() error { return s.fleet.Run(ctx) })
	}
	if s.gateways != nil {
		group.Go(func() error { s.gateways.Run(ctx); return nil })
		// A member cache in this process would do so itself.
		group.Go(func() error { scavenge.Run(ctx, clock.RealClock{}); return nil })
	}
	group.Go(func() error {
		return s.leadership.run(ctx, s.loopback, func(ctx context.Context) error { return s.lead(ctx, servingCA) })
	})
	return group.Wait()
}

// lead runs what only one replica may run.
func (s *system) lead(ctx context.Context, servingCA []byte) error {
	fleet, err := newSights(s.loopback)
	if err != nil {
		return err
	}
	federation, err := engine.New(engine.Config{ //nolint:contextcheck // nothing runs until Run, which takes the context
		ControlPlane: s.loopback, Members: engineDirectory{s.membership}, MayWrite: s.leadership.MayWrite, Breaker: s.options.Breaker,
		Unowned: fleet.unowned, Node: fleet.node,
	})
	if err != nil {
		return fmt.Errorf("set up the federation engine: %w", err)
	}
	s.options.finalizer.Lead(federation.Selects, federation.Claims)
	s.settler.Lead(federation)
	defer func() {
		s.options.finalizer.Lead(nil, nil)
		s.settler.Lead(nil)
	}()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return controllers.Run(ctx, s.controllersConfig(servingCA)) })
	group.Go(func() error { return federation.Run(ctx) })
	group.Go(func() error { return s.importer().Run(ctx) })
	group.Go(func() error { return taints.Run(ctx, s.loopback) })
	group.Go(func() error { return rebalance.Run(ctx, s.loopback) })
	group.Go(func() error { return federatedquota.Run(ctx, s.loopback, federation.QuotaParts) })
	return group.Wait()
}

// controllersConfig lets the controllers sign only with the authority that this
// endpoint made and trusts.
func (s *system) controllersConfig(servingCA []byte) controllers.Config {
	c := controllers.Config{
		Loopback: s.loopback, RootCA: servingCA, ServiceAccountKey: s.options.Kube.ServiceAccountSigningKeyFile,
	}
	files := pki.Files{Dir: filepath.Join(s.options.DataDir, "pki")}
	if ca := files.Cert(pki.ClientCA); s.options.Kube.Authentication.ClientCert.ClientCA == ca {
		c.ClientCA, c.ClientCAKey = ca, files.Key(pki.ClientCA)
	}
	return c
}

// importer copies the definitions of the custom kinds that are read from the
// members.
func (s *system) importer() memberkinds.Importer {
	return memberkinds.Importer{ControlPlane: s.loopback, Wanted: fleet.Custom(s.memberResources), Members: func() (out []memberkinds.Member) {
		for _, m := range s.membership.List() {
			if m.Read != nil && m.Ready {
				out = append(out, memberkinds.Member{Name: m.Name, Config: m.Read})
			}
		}
		return out
	}}
}

func (s *system) install(ctx context.Context) error {
	installer, err := install.New(s.loopback)
	if err != nil {
		return err
	}
	if err := installer.EnsureNamespace(ctx); err != nil {
		return err
	}
	if err := installer.CRDs(ctx, crds.Files); err != nil {
		return err
	}
	if err := installer.CRDs(ctx, memberkinds.Files); err != nil {
		return err
	}
	if !s.options.DefaultPolicy {
		return nil
	}
	return installer.Defaults(ctx, defaults.Files)
}

// readyChecks are what /readyz asks beside the chain's own checks.
func (s *system) readyChecks() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{
		healthz.NamedCheck("isthmus-installed", func(*http.Request) error {
			if !s.installed.Load() {
				return errors.New("our own kinds are not served yet")
			}
			return nil
		}),
	}
	if s.fleet != nil {
		checks = append(checks, healthz.NamedCheck("isthmus-member-cache", func(*http.Request) error { return s.fleet.Ready() }))
	}
	return checks
}
