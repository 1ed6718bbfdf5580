package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Permission for one cluster is asked as the request's own verb on this
// resource, under the name of the cluster. The endpoint's RBAC has allowed the
// request before the cluster was known; this limits what it has allowed.
const (
	accessGroup       = "cluster.karmada.io"
	accessVersion     = "v1alpha1"
	accessResource    = "clusters"
	accessSubresource = "access"
)

// accessAttributes is the question whether a request may concern a cluster.
func accessAttributes(ctx context.Context, info *request.RequestInfo, name cache.ClusterName) authorizer.AttributesRecord {
	u, _ := request.UserFrom(ctx)
	return authorizer.AttributesRecord{
		User: u, Verb: info.Verb, ResourceRequest: true, Path: info.Path,
		APIGroup: accessGroup, APIVersion: accessVersion,
		Resource: accessResource, Subresource: accessSubresource, Name: string(name),
	}
}

// authorizeCluster says whether a request may concern a cluster. Without an
// Authorizer, which is the default, it may concern all; the control plane
// authorizes by itself, and so does the proxy of a Cluster, which has a name.
func (h *Handler) authorizeCluster(ctx context.Context, info *request.RequestInfo, name cache.ClusterName) error {
	if h.Authorizer == nil || name == cache.ControlPlane || info.APIGroup == accessGroup && info.Resource == accessResource {
		return nil
	}
	decision, reason, err := h.Authorizer.Authorize(ctx, accessAttributes(ctx, info, name))
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil && reason == "" {
		reason = err.Error()
	}
	return forbidden(info, fmt.Sprintf("not permitted in cluster %q: needs %s on %s/%s of %s with that name", name, info.Verb, accessResource, accessSubresource, accessGroup), reason)
}

func forbidden(info *request.RequestInfo, what, reason string) error {
	if reason != "" {
		what += ": " + sanitize(reason, maxWarning)
	}
	return apierrors.NewForbidden(groupResource(info), info.Name, fmt.Errorf("%s", what))
}

// authorizeSelection says whether a request may concern every cluster that its
// selector lets through. Nothing is left out in silence: a client would take a
// part for the whole.
func (h *Handler) authorizeSelection(ctx context.Context, info *request.RequestInfo, s *selection) error {
	if h.Authorizer == nil {
		return nil
	}
	var denied, allowed []string
	var first error
	for _, m := range h.Members.List() {
		if m.Name == cache.ControlPlane {
			continue
		}
		switch err := h.authorizeCluster(ctx, info, m.Name); {
		case err == nil:
			allowed = append(allowed, string(m.Name))
		case s.mayBeIn(m.Name):
			denied = append(denied, string(m.Name))
			if first == nil {
				first = err
			}
		}
	}
	switch {
	case len(denied) == 0:
		return nil
	case len(allowed) == 0:
		return first
	}
	slices.Sort(denied)
	slices.Sort(allowed)
	return forbidden(info, fmt.Sprintf("not permitted in every cluster: not in %s; narrow the request by the label selector %q",
		sanitize(strings.Join(denied, ", "), maxWarning),
		fmt.Sprintf("%s in (%s)", cache.ClusterLabel, sanitize(strings.Join(allowed, ","), maxWarning))), "")
}

// permitter says of each cluster whose objects a watch comes upon whether the
// request may concern it: one that joins later was not asked about before. It
// asks once for each, and is for one goroutine.
func (h *Handler) permitter(ctx context.Context, info *request.RequestInfo) func(cache.ClusterName) error {
	if h.Authorizer == nil {
		return func(cache.ClusterName) error { return nil }
	}
	known := map[cache.ClusterName]error{}
	return func(name cache.ClusterName) error {
		err, asked := known[name]
		if !asked {
			err = h.authorizeCluster(ctx, info, name)
			known[name] = err
		}
		return err
	}
}
