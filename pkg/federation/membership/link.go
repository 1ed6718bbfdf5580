package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// retireAfter is how long users of a replaced address have to move before its
// connections are cut.
const retireAfter = 5 * time.Second

// way is a way to a member and the token to use on it.
type way struct {
	access Access
	token  string
}

// identity is one of our identities in a member, connected.
type identity struct {
	way    way
	token  atomic.Pointer[string]
	config *rest.Config
	dialer *connrotation.Dialer
	probe  *prober
	// probeDialer holds the probe's own connections.
	probeDialer *connrotation.Dialer
}

func (id *identity) close() {
	id.dialer.CloseAll()
	id.probe.forget()
	id.probeDialer.CloseAll()
}

// desired is what a link should be: made from a Cluster and its Secrets.
type desired struct {
	uid         types.UID // spec.id
	read        *way
	apply       *way // nil: the read identity applies too
	impersonate *way
	problem     error // why there is no way

	impersonateProblem error // why there is none for users
}

// link is the live side of one member: its connections, its health.
type link struct {
	name       string
	timing     Timing
	thresholds Thresholds
	// foreign is asked whether a UID belongs to somebody else.
	foreign func(name string, uid types.UID) (who string)
	// changed is told of anything that Cluster status should show.
	changed func()
	leads   func() bool
	// groups are the groups of custom resources that may be propagated.
	groups  func() []string
	sums    SummarySource
	kick    chan struct{}
	trust   *trust
	stopped chan struct{}

	mu          sync.Mutex
	stop        context.CancelFunc // nil until started
	want        desired
	read        *identity
	apply       *identity
	impersonate *identity
	health      Health
	applySeen   observation
	seenUID     types.UID
	found       *discovered
	known       []v1alpha1.APIEnablement // as last written, until found
	summary     *Summary
	summaryAt   time.Time // when the next is due
	granted     []string  // groups that the apply identity may write
	grantNext   time.Time
}

func newLink(name string, h Health) *link {
	l := &link{name: name, health: h, kick: make(chan struct{}, 1), stopped: make(chan struct{})}
	l.trust = &trust{ask: l.confirm}
	return l
}

// configure moves the link to the desired state. Connections are kept where
// nothing about them changed.
func (l *link) configure(want desired) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.want
	l.want = want
	var errs []error
	moved := false
	for _, one := range []struct {
		id  **identity
		way *way
		as  string
	}{{&l.read, want.read, "read"}, {&l.apply, want.apply, "apply"}, {&l.impersonate, want.impersonate, "impersonate"}} {
		m, err := l.connect(one.id, one.way, one.as)
		moved = moved || m
		errs = append(errs, err)
	}
	if before.uid != want.uid {
		moved = true
		l.trust.unblock()
	}
	if moved {
		l.granted, l.grantNext = nil, time.Time{}
		l.trust.doubt()
		l.health = l.health.Renewed()
		l.nudge()
	}
	return errors.Join(errs...)
}

// connect brings one identity to a way and reports whether anything changed.
func (l *link) connect(id **identity, w *way, as string) (bool, error) {
	old := *id
	switch {
	case old == nil && w == nil:
		return false, nil
	case w == nil:
		*id = nil
		retire(old, 0)
		return true, nil
	case old != nil && old.way.access == w.access:
		if old.way.token == w.token {
			return false, nil
		}
		old.way.token = w.token
		old.token.Store(&w.token)
		return true, nil
	}
	fresh, err := l.dial(*w, as)
	if err != nil {
		return false, fmt.Errorf("%s identity: %w", as, err)
	}
	*id = fresh
	if old != nil && old.way.access.Host != w.access.Host {
		retire(old, retireAfter)
	}
	return true, nil
}

// retire cuts the connections of an identity that nobody should use any more.
// One whose address stays is left to its users: streams may still run on it.
func retire(id *identity, after time.Duration) {
	if after == 0 {
		id.close()
		return
	}
	time.AfterFunc(after, id.close)
}

func (l *link) dial(w way, as string) (*identity, error) {
	id := &identity{way: w}
	id.token.Store(&w.token)
	config, dialer, err := w.access.config("isthmus-" + as)
	if err != nil {
		return nil, err
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoEndpoint, err)
	}
	config.WrapTransport = l.gateFor(id, host.Host)
	probeConfig, probeDialer, err := w.access.config("isthmus-probe")
	if err != nil {
		return nil, err
	}
	probe, err := newProber(probeConfig, func() string { return *id.token.Load() }, l.timing.ProbeTimeout)
	if err != nil {
		return nil, err
	}
	id.config, id.dialer, id.probe, id.probeDialer = config, dialer, probe, probeDialer
	return id, nil
}

// gateFor puts a gate of this link before every transport that is made from
// the identity's config.
func (l *link) gateFor(id *identity, host string) func(http.RoundTripper) http.RoundTripper {
	return func(rt http.RoundTripper) http.RoundTripper {
		return &gate{base: rt, host: host, token: &id.token, trust: l.trust, unauthorized: l.nudge}
	}
}

func (l *link) nudge() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// start begins to probe, once.
func (l *link) start(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		return
	}
	ctx, l.stop = context.WithCancel(ctx)
	go l.run(ctx)
}

// run probes until ctx ends.
func (l *link) run(ctx context.Context) {
	defer close(l.stopped)
	logger := klog.FromContext(ctx).WithValues("cluster", l.name)
	ctx = klog.NewContext(ctx, logger)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.inspectLoop(ctx)
	}()
	defer func() { <-done }()
	timer := time.NewTimer(l.firstProbe())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		case <-timer.C:
		}
		l.probeOnce(ctx)
		timer.Reset(l.timing.Probe)
		// A member that answers 401 to everybody must not make us probe
		// without a pause.
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(time.Second, l.timing.Probe)):
		}
	}
}

// firstProbe is the time to the first probe. A Cluster may be seen a moment
// before its Secrets: their arrival nudges.
func (l *link) firstProbe() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.read == nil {
		return min(2*time.Second, l.timing.Probe)
	}
	return 0
}

// close ends the link: nothing passes its gates any more.
func (l *link) close() {
	l.trust.block(ErrLeft)
	l.mu.Lock()
	stop := l.stop
	l.mu.Unlock()
	if stop != nil {
		stop()
		<-l.stopped
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range []*identity{l.read, l.apply, l.impersonate} {
		if id != nil {
			id.close()
		}
	}
}

// probeOnce asks the member how it is and records the outcome.
func (l *link) probeOnce(ctx context.Context) {
	l.mu.Lock()
	read, apply, problem := l.read, l.apply, l.want.problem
	l.mu.Unlock()
	_, epoch, _ := l.trust.state()
	var obs, applied observation
	if read == nil {
		obs = observation{verdict: VerdictInvalidCredentials, message: "there is no way to the member"}
		if problem != nil {
			obs.message = excerpt([]byte(problem.Error()))
		}
	} else {
		obs = read.probe.observe(ctx)
		if apply != nil && obs.verdict.Reachable() {
			cctx, cancel := context.WithTimeout(ctx, l.timing.ProbeTimeout)
			applied = apply.probe.identity(cctx)
			cancel()
		}
	}
	if ctx.Err() != nil {
		return
	}
	if obs.uid != "" {
		obs = l.judge(obs, epoch)
	} else if obs.verdict == VerdictUnreachable {
		l.trust.fail(unknown(obs))
	}
	l.mu.Lock()
	before := l.health
	l.health = before.Observe(time.Now(), obs.verdict, obs.message, l.thresholds)
	after := l.health
	l.applySeen = applied
	l.mu.Unlock()
	if before.Ready != after.Ready || !before.Known {
		klog.FromContext(ctx).Info("Cluster health changed", "ready", after.Ready, "reason", after.Reason, "message", after.Message)
	}
	l.changed()
}

// judge compares the UID that a member showed with the one it should have.
func (l *link) judge(obs observation, epoch uint64) observation {
	l.mu.Lock()
	want := l.want
	l.seenUID = obs.uid
	l.mu.Unlock()
	who := l.foreign(l.name, obs.uid)
	switch {
	case want.uid != "" && obs.uid != want.uid:
		obs.verdict = VerdictIdentityChanged
		obs.message = fmt.Sprintf("the kube-system namespace behind %s has UID %s, but the cluster that joined has %s: nothing is read or written until the change is confirmed by setting spec.id to the new UID, or the Cluster is unjoined", l.host(), obs.uid, want.uid)
		l.trust.block(fmt.Errorf("cluster %q: %w", l.name, ErrIdentityChanged))
	case who != "":
		obs.verdict = VerdictDuplicateIdentity
		obs.message = fmt.Sprintf("this cluster (UID %s) is already %s: remove one of the two", obs.uid, who)
		l.trust.block(fmt.Errorf("cluster %q: %w (%s)", l.name, ErrDuplicateIdentity, who))
	case want.uid != "":
		l.trust.unblock()
		l.trust.settle(epoch)
	}
	return obs
}

func (l *link) host() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.read == nil {
		return "the address"
	}
	return l.read.way.access.Host
}

// confirmTimeout bounds what a request waits for the member's identity.
const confirmTimeout = 4 * time.Second

// unknownError says that a member has not shown who it is.
type unknownError struct {
	message string
	late    bool // it did not answer at all
}

func unknown(obs observation) error {
	return &unknownError{
		message: fmt.Sprintf("whether it is still the cluster that joined is not known: %s: %s", obs.verdict.Reason(), obs.message),
		late:    obs.late,
	}
}

func (e *unknownError) Error() string { return e.message }

// Is makes it a matter of time, as it is to whoever waits for an answer.
func (e *unknownError) Is(target error) bool { return e.late && target == context.DeadlineExceeded }

// confirm is asked by the gates after a broken connection: is it still the
// same cluster?
func (l *link) confirm(ctx context.Context) error {
	l.mu.Lock()
	read := l.read
	l.mu.Unlock()
	if read == nil {
		return fmt.Errorf("cluster %q: %w", l.name, ErrNoCredentials)
	}
	ctx, cancel := context.WithTimeout(ctx, min(l.timing.ProbeTimeout, confirmTimeout))
	defer cancel()
	_, epoch, _ := l.trust.state()
	read.probe.forget()
	obs := read.probe.identity(ctx)
	if obs.verdict != VerdictReady {
		return unknown(obs)
	}
	l.judge(obs, epoch)
	if _, _, blocked := l.trust.state(); blocked != nil {
		l.nudge()
		return blocked
	}
	l.mu.Lock()
	uid := l.want.uid
	l.mu.Unlock()
	if uid == "" {
		l.changed()
		return fmt.Errorf("cluster %q: its identity is not recorded yet", l.name)
	}
	return nil
}

// inspectLoop keeps discovery and summaries fresh while the member is well.
func (l *link) inspectLoop(ctx context.Context) {
	tick := time.NewTicker(min(time.Second, l.timing.Discovery))
	defer tick.Stop()
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if confirmed, _, _ := l.trust.state(); !confirmed || !l.leads() {
			continue
		}
		l.extend(ctx)
		if !time.Now().Before(next) {
			next = time.Now().Add(l.timing.Discovery)
			l.inspect(ctx)
		}
	}
}

func (l *link) inspect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	logger := klog.FromContext(ctx)
	l.mu.Lock()
	read, before, due := l.read, l.known, !time.Now().Before(l.summaryAt)
	if l.found != nil {
		before = l.found.apis
	}
	l.mu.Unlock()
	if read == nil {
		return
	}
	d, err := discoverAPIs(ctx, read.config, before)
	if err != nil {
		logger.V(2).Info("Discovery of a member failed, keeping what was known", "err", err)
	} else {
		l.mu.Lock()
		l.found = &d
		l.mu.Unlock()
		l.changed()
	}
	if !due {
		return
	}
	s, count, err := l.summarize(ctx, read.config)
	l.mu.Lock()
	l.summaryAt = time.Now().Add(summaryDelay(l.timing.Summary, count))
	if err == nil {
		l.summary = &s
	}
	l.mu.Unlock()
	if err != nil {
		logger.V(2).Info("Summary of a member failed, keeping the last one", "err", err)
		return
	}
	l.changed()
}

func (l *link) summarize(ctx context.Context, config *rest.Config) (Summary, int, error) {
	if l.sums != nil {
		s, ok, err := l.sums.Summarize(ctx, l.name)
		if ok || err != nil {
			return s, 0, err
		}
	}
	return summarizeLive(ctx, config)
}
