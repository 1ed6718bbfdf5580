package admission

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rights are what a plugin has that asks whether the user may do more than the
// request itself says.
type rights struct{ authorizer authorizer.Authorizer }

var (
	_ initializer.WantsAuthorizer       = &rights{}
	_ admission.InitializationValidator = &rights{}
)

// SetAuthorizer implements initializer.WantsAuthorizer.
func (r *rights) SetAuthorizer(a authorizer.Authorizer) { r.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator; admission
// adds the name of the plugin.
func (r *rights) ValidateInitialization() error {
	if r.authorizer == nil {
		return errors.New("needs an authorizer")
	}
	return nil
}

// require forbids the request unless its user may do what the attributes say.
// what names the question, refusal says what is missing.
func (r *rights) require(ctx context.Context, a admission.Attributes, needed authorizer.AttributesRecord, what, refusal string) error {
	needed.User, needed.ResourceRequest = a.GetUserInfo(), true
	decision, _, err := r.authorizer.Authorize(ctx, needed)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return admission.NewForbidden(a, fmt.Errorf("%s: %w", what, err))
	}
	return admission.NewForbidden(a, errors.New(refusal))
}
