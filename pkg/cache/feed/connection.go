package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// Reasons for which a watch or list ends.
var (
	errExpired     = errors.New("resourceVersion has expired in the source")
	errNoWatchList = errors.New("source does not stream initial events")
	errMissing     = errors.New("source does not have the resource")
	errShort       = errors.New("source ends its watches at once")
	errSilent      = errors.New("source has been silent for too long")
	errLargePage   = errors.New("page is too large")
)

// Bounds of what is read of one answer. Objects that are so large that a page
// of them is not within its bound come in smaller pages; a single object always
// is.
const (
	maxPage = 32 << 20
	// largePage is what is read of a page before it needs a turn.
	largePage = 4 << 20
	maxError  = 64 << 10
	pageSize  = 500
	// pageShrink divides the size of a page that was too large.
	pageShrink = 8
)

// connection makes the requests of one feed with one config.
type connection struct {
	client *http.Client
	base   *url.URL // of the server, with the prefix of its paths
	opts   Options
	page   int
}

func connect(config *rest.Config, o Options) (*connection, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return &connection{client: client, base: base, opts: o, page: pageSize}, nil
}

func accept(o Options, list string) string {
	typ := "application/vnd.kubernetes.protobuf"
	if o.Resource.Encoding == cache.JSON {
		typ = "application/json"
	}
	if o.Metadata {
		typ += ";as=PartialObjectMetadata" + list + ";g=meta.k8s.io;v=v1"
	}
	return typ
}

func (c *connection) get(ctx context.Context, p string, query url.Values, accept string) (*http.Response, error) {
	u := *c.base
	u.Path = path.Join("/", u.Path, p)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	req.Header.Set("Accept", accept)
	return c.client.Do(req)
}

func groupPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

func (c *connection) resource(ctx context.Context, query url.Values, accept string) (*http.Response, error) {
	if c.opts.LabelSelector != "" {
		query.Set("labelSelector", c.opts.LabelSelector)
	}
	res := c.opts.Resource
	resp, err := c.get(ctx, groupPath(res.GroupVersion())+"/"+res.Resource, query, accept)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		if err := c.checkType(resp); err != nil {
			return nil, errors.Join(err, resp.Body.Close())
		}
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, c.confirmMissing(ctx)
	}
	return nil, readError(resp)
}

// checkType refuses what is no answer of an API server.
func (c *connection) checkType(resp *http.Response) error {
	want := "application/vnd.kubernetes.protobuf"
	if c.opts.Resource.Encoding == cache.JSON {
		want = "application/json"
	}
	got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || got != want {
		return fmt.Errorf("source answers with content type %q instead of %s", resp.Header.Get("Content-Type"), want)
	}
	return nil
}

// watch opens a watch from an RV, or one that begins with a complete state.
func (c *connection) watch(ctx context.Context, rv string, initial bool) (*wire.Frames, io.Closer, error) {
	seconds := 300 + rand.IntN(300) //nolint:gosec // spreads reconnects, needs no secret
	query := url.Values{
		"watch":               {"true"},
		"allowWatchBookmarks": {"true"},
		"timeoutSeconds":      {strconv.Itoa(seconds)},
	}
	if initial {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		query.Set("resourceVersion", rv)
	}
	resp, err := c.resource(ctx, query, accept(c.opts, ""))
	if err != nil {
		var status *StatusError
		if initial && errors.As(err, &status) && refusesInitial(int(status.Status.Code)) {
			return nil, nil, fmt.Errorf("%w: %w", errNoWatchList, err)
		}
		return nil, nil, err
	}
	return wire.NewFrames(c.opts.Resource.Encoding, resp.Body), resp.Body, nil
}

// refusesInitial says which refusals are about the question, not about the
// moment or the asker.
func refusesInitial(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusGone, http.StatusTooManyRequests:
		return false
	}
	return code >= 400 && code < 500
}

// list reads a complete state in pages.
func (c *connection) list(ctx context.Context, fn func(raw []byte)) (rv string, err error) {
	cont, page := "", c.page
	for {
		query := url.Values{"limit": {strconv.Itoa(page)}}
		if cont != "" {
			query.Set("continue", cont)
		}
		body, err := c.readPage(ctx, query)
		if errors.Is(err, errLargePage) && page > 1 {
			page = max(1, page/pageShrink)
			continue
		}
		if err != nil {
			return "", err
		}
		var pageRV string
		pageRV, cont, err = wire.EachListItem(c.opts.Resource.Encoding, body, c.opts.Resource.GroupVersion().String(), c.opts.Resource.Kind, func(raw []byte) error {
			fn(raw)
			return nil
		})
		if err != nil {
			return "", err
		}
		if rv == "" {
			rv = pageRV
		}
		if cont == "" {
			return rv, nil
		}
	}
}

func (c *connection) readPage(ctx context.Context, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	resp, err := c.resource(ctx, query, accept(c.opts, "List"))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, largePage))
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	if len(body) < largePage {
		return body, nil
	}
	done, err := c.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	rest, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1-largePage))
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	if body = append(body, rest...); len(body) > maxPage {
		return nil, fmt.Errorf("%w: more than %d bytes", errLargePage, maxPage)
	}
	return body, nil
}

// turn waits for a turn at reading a large page; done gives it back.
func (c *connection) turn(ctx context.Context) (done func(), err error) {
	if c.opts.Large == nil {
		return func() {}, nil
	}
	select {
	case c.opts.Large <- struct{}{}:
		return func() { <-c.opts.Large }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to read a large page: %w", ctx.Err())
	}
}

// revision asks for the present RV of the resource.
func (c *connection) revision(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, headerWait)
	defer cancel()
	body, err := c.readPage(ctx, url.Values{"limit": {"1"}})
	if err != nil {
		return "", err
	}
	rv, _, err := wire.EachListItem(c.opts.Resource.Encoding, body, "", "", func([]byte) error { return nil })
	return rv, err
}

// confirmMissing tells a resource that does not exist from a proxy that finds
// nothing at all: only an API server that is well and does not list it counts.
func (c *connection) confirmMissing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, headerWait)
	defer cancel()
	res := c.opts.Resource
	if res.Group == "" {
		return errors.New("source finds nothing under " + groupPath(res.GroupVersion()))
	}
	resp, err := c.get(ctx, groupPath(res.GroupVersion()), nil, "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		var list metav1.APIResourceList
		if err := decode(resp, &list); err != nil || list.Kind != "APIResourceList" {
			return fmt.Errorf("discovery of %s: kind %q: %w", res.GroupVersion(), list.Kind, err)
		}
		for _, r := range list.APIResources {
			if r.Name == res.Resource {
				return fmt.Errorf("source lists %s but does not find it", res.Resource)
			}
		}
		return errMissing
	}
	groups, err := c.get(ctx, "/apis", nil, "application/json")
	if err != nil {
		return err
	}
	defer groups.Body.Close()
	var list metav1.APIGroupList
	if err := decode(groups, &list); err != nil || list.Kind != "APIGroupList" {
		return fmt.Errorf("discovery: kind %q: %w", list.Kind, err)
	}
	for _, g := range list.Groups {
		for _, v := range g.Versions {
			if v.GroupVersion == res.GroupVersion().String() {
				return fmt.Errorf("source lists %s but does not find it", v.GroupVersion)
			}
		}
	}
	return errMissing
}

func decode(resp *http.Response, into any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// StatusError is a refusal by the source.
type StatusError struct {
	Status     metav1.Status
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("source answers %d %s: %s", e.Status.Code, e.Status.Reason, e.Status.Message)
}

func readError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil {
		return fmt.Errorf("source answers %s: %w", resp.Status, err)
	}
	e := &StatusError{}
	if status, err := wire.DecodeStatus(body); err == nil && status.Status == metav1.StatusFailure {
		e.Status = *status
	} else {
		e.Status.Message = http.StatusText(resp.StatusCode)
	}
	e.Status.Code = int32(resp.StatusCode) //nolint:gosec // three digits
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = min(time.Duration(s)*time.Second, time.Minute)
	}
	return expired(e)
}

// statusError is the error of an ERROR event.
func statusError(status *metav1.Status) error {
	return expired(&StatusError{Status: *status})
}

func expired(e *StatusError) error {
	tooLarge := false
	if d := e.Status.Details; d != nil {
		for _, c := range d.Causes {
			tooLarge = tooLarge || c.Type == metav1.CauseTypeResourceVersionTooLarge
		}
	}
	if e.Status.Code == http.StatusGone || tooLarge {
		return fmt.Errorf("%w: %w", errExpired, e)
	}
	return e
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.RetryAfter
	}
	return 0
}

// older compares two RVs as numbers; what is none is not older.
func older(a, b string) bool {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && x < y
}

// alarm calls a function when it was not reset in time.
type alarm struct {
	mu    sync.Mutex
	timer clock.Timer
	reset func(time.Duration)
	stop  func()
}

func (a *alarm) off() { a.reset(0) }

func newAlarm(c clock.WithTicker, wait time.Duration, fn func()) *alarm {
	a := &alarm{timer: c.NewTimer(wait)}
	done := make(chan struct{})
	a.stop = sync.OnceFunc(func() { close(done); a.timer.Stop() })
	a.reset = func(d time.Duration) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.timer.Stop()
		if d > 0 {
			a.timer.Reset(d)
		}
	}
	go func() {
		select {
		case <-a.timer.C():
			fn()
		case <-done:
		}
	}()
	return a
}
