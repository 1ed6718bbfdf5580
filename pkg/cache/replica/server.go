// Package replica carries the log of the cache that numbers the events to the
// caches that follow it:
//
//	merge.Stream -> Server -> frames over TLS -> Follower -> merge.Follower
//	a read at a follower -> Follower.Present -> Server -> the present head
//
// Frames are those of package journal: length, checksum, kind, payload. A stream
// says first of what it is, in which form and in which epoch; it begins behind
// the RV that is asked for, or with a complete state where that RV is not known.
package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/journal"
	"github.com/isthmus-dev/isthmus/pkg/cache/membercache"
)

// Prefix of the paths that replicas ask one another.
const Prefix = "/isthmus/replication/v1/"

const (
	logPath   = "log/"
	headPath  = "head/"
	readyPath = "ready"
	// epochHeader says in which epoch an answer was given.
	epochHeader = "X-Isthmus-Epoch"
	epochMark   = "\nepoch "
	// writeWait bounds how long a follower that does not read is waited for.
	writeWait = 15 * time.Second
)

// Roles say which process numbers the events.
type Roles interface {
	// Leading gives the epoch in which this process does; the error says why it
	// may not.
	Leading() (epoch uint64, err error)
	// Leader gives the address of the process that does, empty where none is
	// known, and the highest epoch that was heard of.
	Leader() (address string, epoch uint64)
}

// Server answers other replicas.
type Server struct {
	Cache *membercache.Cache
	Roles Roles
	// Ready says whether requests may be sent here.
	Ready func() error
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := strings.TrimPrefix(r.URL.Path, Prefix)
	if what == readyPath {
		if err := s.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
		return
	}
	epoch, err := s.Roles.Leading()
	if err != nil {
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	if asked, _ := strconv.ParseUint(r.URL.Query().Get("epoch"), 10, 64); asked > epoch {
		http.Error(w, fmt.Sprintf("epoch %d is over, epoch %d is known", epoch, asked), http.StatusMisdirectedRequest)
		return
	}
	w.Header().Set(epochHeader, strconv.FormatUint(epoch, 10))
	if name, ok := strings.CutPrefix(what, headPath); ok {
		s.head(w, name)
		return
	}
	if name, ok := strings.CutPrefix(what, logPath); ok {
		s.log(w, r, name, epoch)
		return
	}
	http.NotFound(w, r)
}

func (s *Server) find(name string) (cache.Resource, bool) {
	for _, c := range s.Cache.Collections() {
		if membercache.StreamName(c.Resource().GroupVersionResource) == name {
			return c.Resource(), true
		}
	}
	return cache.Resource{}, false
}

func (s *Server) head(w http.ResponseWriter, name string) {
	res, ok := s.find(name)
	if !ok {
		http.Error(w, name+" is not cached", http.StatusNotFound)
		return
	}
	head, err := s.Cache.Head(res.GroupVersionResource)
	if err == nil { // a lease that ran out meanwhile makes it worthless
		_, err = s.Roles.Leading()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	_, _ = w.Write(strconv.AppendUint(nil, head, 10)) // who has gone needs no answer
}

func (s *Server) log(w http.ResponseWriter, r *http.Request, name string, epoch uint64) {
	res, ok := s.find(name)
	if !ok {
		http.Error(w, name+" is not cached", http.StatusNotFound)
		return
	}
	from, err := strconv.ParseUint(r.URL.Query().Get("from"), 10, 63)
	if err != nil {
		http.Error(w, "from: "+err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	frames, err := journal.NewWriter(w, Identity(res)+epochMark+strconv.FormatUint(epoch, 10))
	if err != nil {
		return
	}
	out := &stream{Writer: frames, control: http.NewResponseController(w)}
	err = s.Cache.Stream(r.Context(), res.GroupVersionResource, from, out)
	if !errors.Is(err, context.Canceled) {
		klog.FromContext(r.Context()).Info("Stream to a replica ended", "resource", res.Resource, "err", err)
	}
}

// stream bounds how long each part of a stream may take.
type stream struct {
	*journal.Writer
	control *http.ResponseController
}

// Write implements merge.Out.
func (s *stream) Write(kind byte, payload []byte) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
		return err
	}
	return s.Writer.Write(kind, payload)
}

// Flush implements merge.Out.
func (s *stream) Flush() error {
	return errors.Join(s.Writer.Flush(), s.control.Flush())
}

// Identity says of what a stream is, and in which form.
func Identity(res cache.Resource) string { return membercache.LogName(res) + "\nstream 1" }

func nameOf(gvr schema.GroupVersionResource) string { return membercache.StreamName(gvr) }
