package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
	"github.com/isthmus-dev/isthmus/pkg/proxy/remote"
	"github.com/isthmus-dev/isthmus/pkg/registry/fleet"
	"github.com/isthmus-dev/isthmus/pkg/registry/install"
	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
	"github.com/isthmus-dev/isthmus/pkg/registry/reservation"
)

const (
	// reservationName is the ConfigMap of reserved resourceVersions. It is
	// shared by all gateways of an endpoint: numbers never go back when one
	// takes over from another.
	reservationName = "isthmus-gateway-sequence"
	// drain bounds how long requests may finish after the stop signal.
	drain      = 10 * time.Second
	retryEvery = 2 * time.Second
	// endWithin is how long all else may take after that.
	endWithin    = 5 * time.Second
	headerWithin = 10 * time.Second
)

type server struct {
	options    *Options
	membership *membership.Controller
	fleet      *fleet.Fleet
	replica    *replication // nil for a gateway that is alone
}

func newServer(ctx context.Context, o *Options) (*server, error) {
	files := o.files()
	endpoint := &rest.Config{
		Host: o.Endpoint,
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   files.Cert(pki.ServerCA),
			CertFile: files.Cert(pki.GatewayClient),
			KeyFile:  files.Key(pki.GatewayClient),
		},
	}
	client, err := kubernetes.NewForConfig(endpoint)
	if err != nil {
		return nil, fmt.Errorf("--endpoint %q: %w", o.Endpoint, err)
	}
	s := &server{options: o}
	config := fleet.Config{ControlPlane: endpoint, Dir: o.cacheDir()}
	if o.Advertise == "" {
		config.Clock, err = openSequence(ctx, client, o.Endpoint)
	} else {
		s.replica, err = newReplication(o, client)
	}
	if err != nil {
		return nil, err
	}
	if s.replica != nil {
		config.Clock, config.Replica, config.Lead = s.replica.numbers, s.replica, s.replica.leads
	}
	resources, err := fleet.ParseResources(o.MemberResources)
	if err != nil {
		return nil, err
	}
	s.membership, err = membership.New(membership.Options{ControlPlane: endpoint, Leads: func() bool { return false }})
	if err != nil {
		return nil, fmt.Errorf("set up membership: %w", err)
	}
	reporter, err := newReporter(s.membership, endpoint)
	if err != nil {
		return nil, err
	}
	rights, err := clusterRights(client, o.AuthorizeClusters)
	if err != nil {
		return nil, err
	}
	config.Membership, config.Resources, config.Authorizer = reporter, resources, rights
	config.CompareEvery = o.CompareEvery
	if s.fleet, err = fleet.New(config); err != nil {
		return nil, err
	}
	if s.replica != nil {
		s.replica.join(s.fleet)
	}
	return s, nil
}

// Answers of the endpoint about rights are kept this long.
const (
	allowedFor = 10 * time.Second
	deniedFor  = 2 * time.Second
)

// clusterRights asks the endpoint what a user may do in a cluster; nil permits
// all.
func clusterRights(client kubernetes.Interface, wanted bool) (authorizer.Authorizer, error) {
	if !wanted {
		return nil, nil
	}
	rights, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             allowedFor,
		DenyCacheTTL:              deniedFor,
		WebhookRetryBackoff:       options.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("--authorize-clusters: %w", err)
	}
	return rights, nil
}

// openSequence waits for the endpoint, which may start after its gateway.
func openSequence(ctx context.Context, client kubernetes.Interface, endpoint string) (*sequence.Clock, error) {
	store := reservation.ConfigMap{Client: client, Namespace: install.Namespace, Name: reservationName}
	for {
		numbers, err := sequence.Open(ctx, clock.RealClock{}, store, func(err error) {
			klog.ErrorS(err, "resourceVersions cannot be reserved ahead, will retry")
		})
		if err == nil {
			return numbers, nil
		}
		klog.InfoS("Waiting for the endpoint", "endpoint", endpoint, "err", err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the endpoint %s does not answer: %w", endpoint, err)
		case <-time.After(retryEvery):
		}
	}
}

func (s *server) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.membership.Run(ctx) })
	group.Go(func() error { return s.fleet.Run(ctx) })
	if s.replica != nil {
		group.Go(func() error { return s.replica.run(ctx) })
	}
	group.Go(func() error { return s.serveRequests(ctx) })
	group.Go(func() error { return s.serveMetrics(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// What waits for a number that a replaced gateway must not give waits forever.
	select {
	case err := <-ended:
		return err
	case <-time.After(drain + endWithin):
		return fmt.Errorf("not all parts have ended: %w", context.Cause(ctx))
	}
}

func (s *server) serveRequests(ctx context.Context) error {
	files := s.options.files()
	certificate, err := tls.LoadX509KeyPair(files.Cert(pki.GatewayServer), files.Key(pki.GatewayServer))
	if err != nil {
		return fmt.Errorf("read the serving certificate: %w", err)
	}
	authority, err := cert.NewPool(files.Cert(pki.GatewayCA))
	if err != nil {
		return fmt.Errorf("read the gateway authority: %w", err)
	}
	handler := remote.Handler(s.fleet.Kinds(), s.fleet.Gateway(), ctx.Done())
	if s.replica != nil {
		handler = s.replica.handler(s.fleet, ctx.Done())
	}
	return serve(ctx, "--listen", s.options.Listen, handler, remote.TLSConfig(certificate, authority))
}

func (s *server) serveMetrics(ctx context.Context) error {
	if s.options.MetricsListen == "" {
		return nil
	}
	registry := prometheus.NewRegistry()
	collectors := s.fleet.Collectors()
	if s.replica != nil {
		collectors = append(collectors, s.replica)
	}
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("register the gateway's metrics: %w", err)
		}
	}
	gatherers := prometheus.Gatherers{legacyregistry.DefaultGatherer, registry}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { sayOK(w) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.fleet.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		sayOK(w)
	})
	if s.options.Profiling {
		addProfiles(mux)
	}
	return serve(ctx, "--metrics-listen", s.options.MetricsListen, mux, nil)
}

func addProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// sayOK answers a probe; a client that has gone needs no answer.
func sayOK(w http.ResponseWriter) { _, _ = io.WriteString(w, "ok\n") }

// serve answers on address until ctx ends, then lets requests finish.
func serve(ctx context.Context, flag, address string, handler http.Handler, tlsConfig *tls.Config) error {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%s %s: %w (choose another address, or stop what uses it)", flag, address, err)
	}
	if tlsConfig != nil {
		listener = tls.NewListener(listener, tlsConfig)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerWithin}
	klog.InfoS("Serving", "flag", flag, "address", listener.Addr())
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		stopped <- server.Shutdown(limit)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return <-stopped
}
