package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache/membercache"
	"github.com/isthmus-dev/isthmus/pkg/cache/replica"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
	"github.com/isthmus-dev/isthmus/pkg/proxy/remote"
	"github.com/isthmus-dev/isthmus/pkg/registry/fleet"
	"github.com/isthmus-dev/isthmus/pkg/registry/install"
	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
	"github.com/isthmus-dev/isthmus/pkg/registry/reservation"
	"github.com/isthmus-dev/isthmus/pkg/registry/sequencer"
)

const (
	// leaseName is the Lease of the gateway that numbers the events.
	leaseName = "isthmus-gateway"
	// handOver is how long the last events may take to reach the others before
	// the Lease is given up.
	handOver   = 500 * time.Millisecond
	startRetry = 500 * time.Millisecond
)

// replication makes a gateway one of several: it follows the one that holds the
// Lease, and takes over from it.
type replication struct {
	*sequencer.Elector
	advertise   string
	client      kubernetes.Interface
	certificate tls.Certificate
	authority   *x509.CertPool
	numbers     *sequence.Clock
	cache       *membercache.Cache
	follower    *replica.Follower
	leads       chan struct{} // closed when this gateway numbers the events
}

var (
	_ membercache.Replica = &replication{}
	_ replica.Roles       = &replication{}
)

func newReplication(o *Options, client kubernetes.Interface) (*replication, error) {
	files := o.files()
	certificate, err := tls.LoadX509KeyPair(files.Cert(pki.GatewayClient), files.Key(pki.GatewayClient))
	if err != nil {
		return nil, fmt.Errorf("read the certificate towards the other gateways: %w", err)
	}
	authority, err := cert.NewPool(files.Cert(pki.GatewayCA))
	if err != nil {
		return nil, fmt.Errorf("read the gateway authority: %w", err)
	}
	r := &replication{advertise: o.Advertise, client: client, certificate: certificate, authority: authority, leads: make(chan struct{})}
	r.numbers = sequence.New(clock.RealClock{}, func() bool { return r.Holds() == nil })
	r.Elector = sequencer.New(client.CoordinationV1().Leases(install.Namespace), leaseName, o.Advertise, clock.RealClock{}, r.state)
	return r, nil
}

// join completes it with the cache, which needed it before.
func (r *replication) join(f *fleet.Fleet) {
	r.cache = f.Cache()
	r.follower = replica.NewFollower(r.cache, r, remote.NewPeerClient(r.certificate, r.authority), clock.RealClock{})
}

// state says whether the log of the holder of the Lease is here, and whether any
// state is.
func (r *replication) state() (follows, has bool) {
	return r.cache.Loaded() == nil, r.cache.LastHead() > 0
}

// Present implements membercache.Replica.
func (r *replication) Present(ctx context.Context, gvr schema.GroupVersionResource) (uint64, error) {
	return r.follower.Present(ctx, gvr)
}

// Behind implements membercache.Replica.
func (r *replication) Behind() (time.Time, string, bool) {
	if !r.cache.Following() {
		since, lapsed := r.Lapsed()
		return since, "this gateway cannot renew its Lease", lapsed
	}
	return r.follower.Behind()
}

// Leading implements replica.Roles: with the Lease alone nothing is numbered yet.
func (r *replication) Leading() (uint64, error) {
	if r.cache.Following() {
		return 0, sequencer.ErrNotLeading
	}
	return r.Elector.Leading()
}

// ready says whether requests may be sent here.
func (r *replication) ready(f *fleet.Fleet) func() error {
	return func() error {
		if since, why, behind := r.Behind(); behind {
			return fmt.Errorf("behind since %s: %s", since.UTC().Format(time.RFC3339), why)
		}
		return f.Ready()
	}
}

// handler serves endpoints and other replicas.
func (r *replication) handler(f *fleet.Fleet, stopping <-chan struct{}) http.Handler {
	forwarder := remote.NewForwarder(remote.Forwarder{
		Local: f.Gateway(), Leads: func() error { _, err := r.Leading(); return err },
		Leader: func() string { address, _ := r.Leader(); return address },
		Own:    r.advertise,
	}, r.certificate, r.authority)
	requests := remote.Handler(f.Kinds(), forwarder, stopping)
	replicas := &replica.Server{Cache: r.cache, Roles: r, Ready: r.ready(f)}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, replica.Prefix) {
			replicas.ServeHTTP(w, req)
			return
		}
		requests.ServeHTTP(w, req)
	})
}

// run follows until this gateway is elected, leads then, and gives the Lease up
// at the end.
func (r *replication) run(ctx context.Context) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.Elector.Run(electing) })
	group.Go(func() error {
		defer stop()
		if err := r.followAndLead(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return r.handOver(electing)
	})
	return group.Wait()
}

func (r *replication) followAndLead(ctx context.Context) error {
	following, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.follower.Run(following)
	}()
	select {
	case <-r.Elected():
	case <-ctx.Done():
	}
	stop()
	<-ended
	if ctx.Err() != nil {
		return nil
	}
	return r.lead(ctx)
}

// lead starts the numbers above everything that may have been given out.
func (r *replication) lead(ctx context.Context) error {
	for {
		epoch, err := r.Elector.Leading()
		if err == nil {
			store := reservation.ConfigMap{Client: r.client, Namespace: install.Namespace, Name: reservationName, Epoch: epoch}
			err = r.numbers.Start(ctx, store, r.cache.LastHead(), func(err error) {
				klog.FromContext(ctx).Error(err, "resourceVersions cannot be reserved ahead, will retry")
			})
		}
		if err == nil {
			r.cache.Lead()
			close(r.leads)
			klog.FromContext(ctx).Info("This gateway numbers the events now", "epoch", epoch, "from", r.numbers.Last())
			return nil
		}
		if errors.Is(err, reservation.ErrDeposed) {
			return err
		}
		klog.FromContext(ctx).Info("Numbers are not reserved yet, will retry", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(startRetry):
		}
	}
}

// handOver lets another gateway go on at once.
func (r *replication) handOver(ctx context.Context) error {
	if _, err := r.Leading(); err != nil {
		return nil //nolint:nilerr // who does not lead has nothing to hand over
	}
	r.Leave()
	time.Sleep(handOver)
	return r.Release(ctx)
}

var (
	leadsDesc = prometheus.NewDesc("isthmus_replica_leads", "1 where this gateway numbers the events, 0 where it follows another.", nil, nil)
	lagDesc   = prometheus.NewDesc("isthmus_replica_lag_seconds", "How long ago the log that is followed and furthest behind was heard of; 0 where this gateway leads.", nil, nil)
	epochDesc = prometheus.NewDesc("isthmus_replica_epoch", "How often the Lease of the gateways has changed hands.", nil, nil)
)

// Describe implements prometheus.Collector.
func (r *replication) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leadsDesc, lagDesc, epochDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (r *replication) Collect(ch chan<- prometheus.Metric) {
	leads, lag := 0.0, r.follower.Lag().Seconds()
	if _, err := r.Leading(); err == nil {
		leads = 1
	}
	if !r.cache.Following() {
		lag = 0
	}
	_, epoch := r.Leader()
	for d, v := range map[*prometheus.Desc]float64{leadsDesc: leads, lagDesc: lag, epochDesc: float64(epoch)} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
}
