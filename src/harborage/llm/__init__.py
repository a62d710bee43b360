"""The edge to language models: what a request and an answer are, and the one method that turns one into the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.identity import IdentityMissingError as IdentityMissingError
    from harborage.llm.account import Account as Account
    from harborage.llm.account import CallEstimate as CallEstimate
    from harborage.llm.account import LimitReachedError as LimitReachedError
    from harborage.llm.account import PriceUnknownError as PriceUnknownError
    from harborage.llm.account import accounting as accounting
    from harborage.llm.account import current_account as current_account
    from harborage.llm.client import ChatMessage as ChatMessage
    from harborage.llm.client import CompleteRequest as CompleteRequest
    from harborage.llm.client import CompleteResponse as CompleteResponse
    from harborage.llm.client import Cost as Cost
    from harborage.llm.client import LLMClient as LLMClient
    from harborage.llm.client import OnDelta as OnDelta
    from harborage.llm.client import ReasoningEffort as ReasoningEffort
    from harborage.llm.client import ResponseFormat as ResponseFormat
    from harborage.llm.client import ResponseFormatKind as ResponseFormatKind
    from harborage.llm.client import Role as Role
    from harborage.llm.client import ToolCallStructured as ToolCallStructured
    from harborage.llm.client import ToolChoice as ToolChoice
    from harborage.llm.client import ToolDeclaration as ToolDeclaration
    from harborage.llm.client import Usage as Usage
    from harborage.llm.client import Validator as Validator
    from harborage.llm.client import check_message as check_message
    from harborage.llm.config import LLM_DRIVERS as LLM_DRIVERS
    from harborage.llm.config import ConfigSnapshot as ConfigSnapshot
    from harborage.llm.config import CorrectionsProfile as CorrectionsProfile
    from harborage.llm.config import CostOverrides as CostOverrides
    from harborage.llm.config import Deps as Deps
    from harborage.llm.config import DriverFactory as DriverFactory
    from harborage.llm.config import Governor as Governor
    from harborage.llm.config import MessageOrdering as MessageOrdering
    from harborage.llm.config import ModelProfile as ModelProfile
    from harborage.llm.config import OutputMode as OutputMode
    from harborage.llm.config import ReasoningRouting as ReasoningRouting
    from harborage.llm.config import ResponseShape as ResponseShape
    from harborage.llm.config import SchemaSanitising as SchemaSanitising
    from harborage.llm.config import TransportPolicy as TransportPolicy
    from harborage.llm.configure import Posture as Posture
    from harborage.llm.configure import PostureReader as PostureReader
    from harborage.llm.configure import posture as posture
    from harborage.llm.content import ArtifactStub as ArtifactStub
    from harborage.llm.content import AudioPart as AudioPart
    from harborage.llm.content import Content as Content
    from harborage.llm.content import FetchHint as FetchHint
    from harborage.llm.content import FilePart as FilePart
    from harborage.llm.content import ImagePart as ImagePart
    from harborage.llm.content import Part as Part
    from harborage.llm.content import TextPart as TextPart
    from harborage.llm.content import check_content as check_content
    from harborage.llm.errors import AuthenticationFailedError as AuthenticationFailedError
    from harborage.llm.errors import BadRequestError as BadRequestError
    from harborage.llm.errors import ClientClosedError as ClientClosedError
    from harborage.llm.errors import ConnectionFailedError as ConnectionFailedError
    from harborage.llm.errors import ContextLeakError as ContextLeakError
    from harborage.llm.errors import ContextOverflowError as ContextOverflowError
    from harborage.llm.errors import ContextWindowExceededError as ContextWindowExceededError
    from harborage.llm.errors import DowngradeExhaustedError as DowngradeExhaustedError
    from harborage.llm.errors import IncompleteAnswerError as IncompleteAnswerError
    from harborage.llm.errors import InvalidContentError as InvalidContentError
    from harborage.llm.errors import InvalidJSONSchemaError as InvalidJSONSchemaError
    from harborage.llm.errors import LLMConfigError as LLMConfigError
    from harborage.llm.errors import LLMError as LLMError
    from harborage.llm.errors import MalformedAnswerError as MalformedAnswerError
    from harborage.llm.errors import MissingAPIKeyError as MissingAPIKeyError
    from harborage.llm.errors import ModelNotFoundError as ModelNotFoundError
    from harborage.llm.errors import OrphanToolCallError as OrphanToolCallError
    from harborage.llm.errors import ProviderError as ProviderError
    from harborage.llm.errors import ProviderTimeoutError as ProviderTimeoutError
    from harborage.llm.errors import ProviderUnavailableError as ProviderUnavailableError
    from harborage.llm.errors import QuotaExceededError as QuotaExceededError
    from harborage.llm.errors import RateLimitedError as RateLimitedError
    from harborage.llm.errors import ReasoningBudgetTooLowError as ReasoningBudgetTooLowError
    from harborage.llm.errors import Retry as Retry
    from harborage.llm.errors import RetryExhaustedError as RetryExhaustedError
    from harborage.llm.errors import ToolsUnsupportedError as ToolsUnsupportedError
    from harborage.llm.errors import UnknownDriverError as UnknownDriverError
    from harborage.llm.errors import UnknownModelStringError as UnknownModelStringError
    from harborage.llm.errors import UnsupportedModelError as UnsupportedModelError
    from harborage.llm.errors import ValidationFailedError as ValidationFailedError
    from harborage.llm.opening import open_llm as open_llm
    from harborage.llm.providers import PROVIDERS as PROVIDERS
    from harborage.llm.providers import ModelRef as ModelRef
    from harborage.llm.providers import Provider as Provider
    from harborage.llm.providers import config_for as config_for
    from harborage.llm.providers import known_profile as known_profile
    from harborage.llm.providers import parse_model as parse_model
    from harborage.llm.providers import profile_for as profile_for
    from harborage.llm.providers import resolve_key as resolve_key
    from harborage.llm.providers import with_providers as with_providers
    from harborage.llm.streaming import AnswerBuilder as AnswerBuilder
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.identity": "IdentityMissingError",
            "harborage.llm.account": (
                "Account CallEstimate LimitReachedError PriceUnknownError accounting current_account"
            ),
            "harborage.llm.client": (
                "ChatMessage CompleteRequest CompleteResponse Cost LLMClient OnDelta ReasoningEffort "
                "ResponseFormat ResponseFormatKind Role ToolCallStructured ToolChoice ToolDeclaration Usage "
                "Validator check_message"
            ),
            "harborage.llm.config": (
                "ConfigSnapshot CorrectionsProfile CostOverrides Deps DriverFactory Governor LLM_DRIVERS "
                "MessageOrdering ModelProfile OutputMode ReasoningRouting ResponseShape SchemaSanitising "
                "TransportPolicy"
            ),
            "harborage.llm.configure": "Posture PostureReader posture",
            "harborage.llm.content": (
                "ArtifactStub AudioPart Content FetchHint FilePart ImagePart Part TextPart check_content"
            ),
            "harborage.llm.errors": (
                "AuthenticationFailedError BadRequestError ClientClosedError ConnectionFailedError "
                "ContextLeakError ContextOverflowError ContextWindowExceededError DowngradeExhaustedError "
                "IncompleteAnswerError InvalidContentError InvalidJSONSchemaError LLMConfigError LLMError "
                "MalformedAnswerError MissingAPIKeyError ModelNotFoundError OrphanToolCallError ProviderError "
                "ProviderTimeoutError ProviderUnavailableError QuotaExceededError RateLimitedError "
                "ReasoningBudgetTooLowError Retry RetryExhaustedError ToolsUnsupportedError UnknownDriverError "
                "UnknownModelStringError UnsupportedModelError ValidationFailedError"
            ),
            "harborage.llm.opening": "open_llm",
            "harborage.llm.providers": (
                "ModelRef PROVIDERS Provider config_for known_profile parse_model profile_for resolve_key "
                "with_providers"
            ),
            "harborage.llm.streaming": "AnswerBuilder",
        },
    )
