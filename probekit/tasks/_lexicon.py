"""Words and templates of the demonstration tasks.

Words are separated by commas. Words before the bar ``|`` are for train only, words after it for dev only; lists without
a bar are for both. ``a/b`` are two forms between which a factor chooses: singular/plural, praise/blame, word/synonym.
"""

from __future__ import annotations

__all__ = [
    "ACCEPTABILITY",
    "AGREEMENT",
    "CAPTIONS",
    "PARAPHRASE",
    "PARAPHRASE_WORDS",
    "SCENES",
    "SENTIMENT",
    "SENTIMENT_WORDS",
    "SIMILARITY",
]

# Agreement. In a template, ``head`` controls and ``agree`` must agree with it; other numbered words are distractors.
AGREEMENT = {
    "person": """
        author/authors, doctor/doctors, lawyer/lawyers, singer/singers, farmer/farmers,
        student/students, teacher/teachers, pilot/pilots, painter/painters, dancer/dancers,
        soldier/soldiers, banker/bankers, customer/customers, neighbour/neighbours, woman/women,
        child/children, engineer/engineers, senator/senators, tourist/tourists, nurse/nurses,
        critic/critics, guard/guards, baker/bakers, plumber/plumbers
        | actor/actors, chemist/chemists, judge/judges, driver/drivers, gardener/gardeners,
        reporter/reporters, sailor/sailors, surgeon/surgeons, man/men, visitor/visitors, editor/editors,
        dentist/dentists""",
    "persons": """
        authors, doctors, singers, farmers, students, teachers, painters, soldiers, women, children,
        tourists, nurses
        | actors, judges, drivers, gardeners, reporters, sailors, men, visitors""",
    "female": """
        queen/queens, aunt/aunts, girl/girls, sister/sisters, waitress/waitresses, mother/mothers
        | actress/actresses, princess/princesses, grandmother/grandmothers, daughter/daughters""",
    "male": """
        king/kings, uncle/uncles, boy/boys, brother/brothers, father/fathers, monk/monks
        | prince/princes, nephew/nephews, grandfather/grandfathers, gentleman/gentlemen""",
    "thing": """
        lamp/lamps, letter/letters, mirror/mirrors, bottle/bottles, ladder/ladders, carpet/carpets,
        chair/chairs, table/tables, painting/paintings, basket/baskets, guitar/guitars, clock/clocks,
        kettle/kettles, book/books, bicycle/bicycles, suitcase/suitcases, jacket/jackets, camera/cameras
        | vase/vases, wardrobe/wardrobes, candle/candles, blanket/blankets, shelf/shelves, piano/pianos,
        cupboard/cupboards, bucket/buckets, knife/knives, helmet/helmets""",
    "walks": """
        laughs/laugh, smiles/smile, waits/wait, works/work, travels/travel, sings/sing, dances/dance,
        swims/swim, complains/complain, shouts/shout, studies/study, cooks/cook, runs/run, argues/argue,
        practises/practise, whistles/whistle, writes/write, exercises/exercise, paints/paint""",
    "stands": "stands/stand, sits/sit, waits/wait, sleeps/sleep, rests/rest, kneels/kneel",
    "lies": "lies/lie, stands/stand, hangs/hang, rests/rest",
    "is": "is/are",
    "was": "was/were",
    "has": "has/have",
    "does": "does/do",
    "doesn't": "doesn't/don't",
    "herself": "herself/themselves",
    "himself": "himself/themselves",
    "this": "this/these, that/those, every/all, one/two, each/both, another/several",
    "one": "one/many, each/several, one/most, each/all",
    "yesterday": """
        yesterday/tomorrow, last week/next week, a year ago/in a year, last month/next month, last
        year/next year, two days ago/in two days, an hour ago/in an hour""",
    "arrived": """
        arrived/will arrive, smiled/will smile, sang/will sing, left/will leave, spoke/will speak,
        voted/will vote, slept/will sleep, won/will win, cooked/will cook, wrote/will write, danced/will
        dance, paid/will pay""",
    "be": "may be/may have, must be/must have, will be/will have, might be/might have",
    "sleeping": """
        sleeping/slept, waiting/waited, laughing/laughed, talking/talked, dancing/danced,
        smiling/smiled, sneezing/sneezed, swimming/swum, complaining/complained, coughing/coughed""",
    "upstairs": "in the garden, outside, upstairs, at home | downstairs, by the window",
    "king": """
        king/queen, boy/girl, man/woman, brother/sister, uncle/aunt, father/mother, husband/wife
        | prince/princess, son/daughter, grandfather/grandmother, nephew/niece""",
    "him": "himself/herself",
    "doctor": """
        doctor/lamp, lawyer/table, singer/letter, farmer/mirror, teacher/bottle, nurse/chair,
        pilot/clock, woman/book, child/camera
        | judge/candle, actor/vase, driver/piano, sailor/shelf, man/bucket""",
    "who": "who/which",
    "vanished": "disappeared, fell, frightened us, came first, vanished, confused us, came last, got lost",
    "walk": """
        laugh, smile, wait, work, travel, sing, dance, swim, complain, study, argue, practise, whistle,
        write, exercise, paint""",
    "knew": """
        admired, visited, helped, met, knew, called, recognised, interviewed, noticed, remembered,
        thanked, praised, invited, consulted""",
    "hurt": "hurt, blamed, praised, defended, introduced, described, criticised, injured, congratulated, embarrassed",
    "bought": "bought, sold, found, repaired, borrowed, painted, cleaned, lost, broke, photographed",
    "gone": """
        gone home, bought a house, missed the train, won a prize, lost the keys, moved abroad, signed
        the contract, sold the farm, fallen ill""",
    "mood": """
        happy, tired, famous, hungry, nervous, busy, angry, late, rich, polite, proud, lonely, sick,
        curious, ready, careful""",
    "state": "dirty, expensive, broken, empty, heavy, new, valuable, old, wet, fragile, missing, dusty",
    "young": "young, old, tall, clever, quiet, kind, famous, friendly, elderly, shy, cheerful, modest, wealthy",
    "red": "red, old, expensive, small, beautiful, broken, green, heavy, modern, wooden, narrow",
    "often": """
        every morning, at night, on Sundays, in the garden, all day
        | in the afternoon, at weekends, after dinner""",
    "once": "last week, in March, at the market, yesterday | two years ago, on Friday, this spring",
}

# phenomenon: (templates of train, templates of dev)
ACCEPTABILITY = {
    "plain": (
        [
            "the {young} {head:person} {agree:walks} {often}.",
            "the {head:person} {agree:is} {mood}.",
            "{once} the {head:person} {agree:was} {mood}.",
        ],
        ["as a rule, the {head:person} {agree:walks} {often}.", "the {young} {head:person} {agree:was} never {mood}."],
    ),
    "prepositional": (
        [
            "the {head:person} near the {person} {agree:walks} {often}.",
            "the {head:thing} in front of the {person} {agree:was} {state}.",
        ],
        [
            "the {head:person} beside the {young} {person} {agree:walks} {often}.",
            "the {head:thing} under the {thing} {agree:was} {state}.",
        ],
    ),
    "relative": (
        [
            "the {head:person} who {knew} the {person} {agree:walks} {often}.",
            "the {head:person} that the {person} {knew} {agree:is} {mood}.",
        ],
        [
            "the {head:person} who {once} {knew} the {person} {agree:has} {gone}.",
        ],
    ),
    "reflexive": (
        [
            "the {head:female} {hurt} {agree:herself} {once}.",
            "the {head:male} {hurt} {agree:himself} {once}.",
            "the {head:female} who {knew} the {male} {hurt} {agree:herself}.",
        ],
        [
            "the {person} said that the {head:female} {hurt} {agree:herself}.",
            "the {head:male} that the {person} {knew} {hurt} {agree:himself}.",
        ],
    ),
    "determiner": (
        [
            "the {person} {bought} {agree:this} {head:thing} {once}.",
            "we {bought} {agree:this} {red} {head:thing}.",
            "{agree:this} {head:thing} came from the {person}.",
        ],
        [
            "{once}, the {person} {bought} {agree:this} {red} {head:thing}.",
            "{agree:this} {red} {head:thing} belonged to the {person}.",
        ],
    ),
    "question": (
        [
            "{agree:does} the {head:person} {walk} {often}?",
            "{agree:has} the {head:person} near the {person} {gone}?",
        ],
        [
            "{agree:was} the {young} {head:person} {mood}?",
            "why {agree:does} the {head:person} behind the {person} {walk} {often}?",
        ],
    ),
    "partitive": (
        [
            "{head:one} of the {persons} {agree:walks} {often}.",
        ],
        ["{head:one} of the {young} {persons} {agree:doesn't} {walk} {often}."],
    ),
    "tense": (
        [
            "{head:yesterday} the {person} {agree:arrived}.",
            "the {young} {person} {agree:arrived} {head:yesterday}.",
            "we heard that the {person} near the {thing} {agree:arrived} {head:yesterday}.",
        ],
        [
            "{head:yesterday}, as planned, the {young} {person} {agree:arrived}.",
            "the {person} we spoke of {agree:arrived} {head:yesterday}.",
        ],
    ),
    "auxiliary": (
        [
            "the {person} {head:be} {agree:sleeping} {upstairs}.",
            "the {young} {person} near the {person} {head:be} {agree:sleeping}.",
            "we think that the {person} {head:be} {agree:sleeping}.",
        ],
        [
            "{upstairs} the {person} {head:be} {agree:sleeping}.",
            "the {person} who {knew} the {person} {head:be} {agree:sleeping}.",
        ],
    ),
    "gender": (
        [
            "the {head:king} {hurt} {agree:him} {once}.",
            "the {head:king} near the {thing} {hurt} {agree:him}.",
            "{once} the {young} {head:king} {hurt} {agree:him}.",
        ],
        [
            "the {person} said that the {head:king} {hurt} {agree:him}.",
            "the {head:king} who {knew} the {person} {hurt} {agree:him}.",
        ],
    ),
    "animacy": (
        [
            "the {person} found the {head:doctor} {agree:who} {vanished}.",
            "we found the {head:doctor} {agree:who} {vanished} {once}.",
            "here is the {head:doctor} {agree:who} surprised the {person}.",
        ],
        [
            "the {head:doctor} {agree:who} {vanished} was {young}.",
            "it was the {head:doctor} {agree:who} confused the {person}.",
        ],
    ),
    "inversion": (
        [
            "near the {thing} {agree:stands} the {young} {head:person}.",
        ],
        [
            "next to the {thing} {agree:lies} the {red} {head:thing}.",
            "beside the {person} {agree:stands} the {head:person}.",
        ],
    ),
}

# Sentiment. ``good`` and ``also`` have the polarity of the example, ``bad`` the opposite one.
SENTIMENT_WORDS = {
    "good": """
        wonderful/awful, brilliant/dreadful, delightful/tedious, charming/irritating, gripping/boring,
        clever/stupid, original/predictable, moving/hollow, elegant/clumsy, funny/painful,
        excellent/terrible, superb/mediocre, beautiful/ugly, thoughtful/shallow, polished/sloppy,
        convincing/ridiculous, enjoyable/unpleasant, inspiring/depressing, memorable/forgettable,
        lively/dull, impressive/disappointing, fascinating/tiresome, fresh/stale, splendid/pathetic,
        amusing/annoying""",
    "also": "",
    "bad": "",
    "loved": "loved/hated, enjoyed/disliked, admired/despised, praised/criticised, adored/loathed",
    "work": """
        film, novel, play, concert, show, album, comedy, documentary, exhibition, opera, sequel,
        thriller
        | performance, series, musical, cartoon, drama, memoir, lecture, ballet""",
    "part": """
        plot, acting, music, script, beginning, photography, dialogue
        | ending, casting, story, soundtrack, tone""",
    "very": "very, really, truly, extremely, quite | incredibly, remarkably, absolutely",
    "somewhat": "somewhat, rather, fairly | mildly, pretty",
    "people": "critics, viewers, friends of mine, students, colleagues | reviewers, neighbours, guests, fans",
    "where": "in London, at the festival, on Saturday, last night | in Berlin, at the theatre, this summer",
}

SENTIMENT = {
    "plain": (
        [
            "the {work} {where} was {good}.",
            "i saw a {good} {work} {where}.",
            "most {people} {loved} the {work}.",
        ],
        ["this {work} has a {good} {part}.", "what a {good} {work}!"],
    ),
    "intensified": (
        [
            "the {part} of this {work} is {very} {good}.",
            "{people} found the {work} {very} {good} and {also}.",
            "it is not only {good} but also {also}.",
        ],
        ["it was a {very} {good} {work} {where}.", "we all {loved} the {work}, and with good reason."],
    ),
    "softened": (
        [
            "the {work} struck {people} as {somewhat} {good}.",
            "i thought that the {part} was {somewhat} {good}.",
        ],
        ["for a {work}, it is {somewhat} {good}."],
    ),
    "negated": (
        [
            "the {work} {where} was not {good}.",
            "i have never seen a less {good} {work}.",
            "most {people} never {loved} the {work}.",
            "the {part} of this {work} isn't {very} {good}.",
            "{people} found the {work} neither {good} nor {also}.",
            "nobody would call the {part} {good}.",
            "the {work} failed to strike {people} as {good}.",
            "i do not think that the {part} was {good} or {also}.",
        ],
        [
            "this {work} does not have a {good} {part}.",
            "it was hardly a {good} {work}.",
            "none of us {loved} the {work} {where}.",
            "the {part} of the {work} is far from {good}.",
            "i can't say that this is a {very} {good} {work}.",
        ],
    ),
    "contrast": (
        [
            "the {part} was {bad}, but the {work} as a whole is {good}.",
            "although the {part} is {bad}, this {work} is {very} {good}.",
            "{people} had promised a {bad} {work}, yet it was {good}.",
            "it is a {good} {work} despite the {bad} {part}.",
        ],
        [
            "the {work} was {good} even if the {part} seemed {bad}.",
            "while {people} called it {bad}, it is really a {good} {work}.",
        ],
    ),
}

# Paraphrase. Agent a, patient p, verb v, adjunct t; singular people, verbs whose past tense is the participle.
PARAPHRASE_WORDS = {
    "person": """
        doctor/physician, lawyer/attorney, author/writer, kid/child, reporter/journalist, boss/manager,
        singer/vocalist, guest/visitor, teacher/instructor, soldier/trooper, king/monarch,
        seller/vendor, burglar/thief, sailor/mariner
        | professor/academic, cop/policeman, guard/watchman, actor/performer, farmer/grower,
        buyer/customer, priest/clergyman, scholar/researcher""",
    "verb": """
        praised/commended, hired/employed, helped/assisted, attacked/assaulted, rescued/saved,
        scolded/reprimanded, followed/pursued, questioned/interrogated, dismissed/fired,
        observed/watched, annoyed/irritated, frightened/scared, persuaded/convinced, phoned/called
        | warned/alerted, insulted/offended, deceived/tricked, escorted/accompanied, supported/backed,
        pleased/delighted, imitated/copied, greeted/welcomed""",
    "time": """
        last week, on Monday, in the park, at the station, after lunch
        | on Tuesday, in the hotel, before the war""",
}

PARAPHRASE = (
    [
        ("the {a} {v} the {p} {t}.", "the {p} was {v} by the {a} {t}."),
        ("{t}, the {p} was {v} by the {a}.", "{t}, the {a} {v} the {p}."),
        ("the {a} {v} the {p} {t}.", "{t}, the {a} {v} the {p}."),
        ("{t}, the {p} was {v} by the {a}.", "the {p} was {v} by the {a} {t}."),
        ("it was the {a} who {v} the {p}.", "the {p} was {v} by the {a}."),
        ("it was the {a} who {v} the {p} {t}.", "{t}, the {a} {v} the {p}."),
        ("the {a} {v} the {p}.", "the one who was {v} by the {a} was the {p}."),
        ("we heard that the {a} {v} the {p}.", "we heard that the {p} was {v} by the {a}."),
        ("we heard that the {p} was {v} by the {a} {t}.", "we heard that it was the {a} who {v} the {p} {t}."),
        ("the {p} was the one whom the {a} {v} {t}.", "{t}, it was the {p} who was {v} by the {a}."),
    ],
    [
        ("{t} the {a} in question {v} the {p}.", "{t} the {p} was {v} by the {a} in question."),
        ("according to the police, the {a} {v} the {p}.", "the {p} was {v} by the {a}, according to the police."),
        ("i am sure that the {p} was {v} by the {a}.", "i am sure that the {a} {v} the {p}."),
        ("it so happened that the {a} {v} the {p} {t}.", "{t}, it so happened that the {p} was {v} by the {a}."),
        ("it was by the {a} that the {p} was {v}.", "the {a} was the one who {v} the {p}."),
    ],
)

# Similarity. Captions: verbs (-ing/participle) and objects of a scene combine freely.
SCENES = (
    [
        ("slicing/sliced, washing/washed, peeling/peeled", "potato, carrot, onion, apple, cucumber"),
        ("tuning/tuned, carrying/carried, selling/sold", "guitar, violin, drum, trumpet, banjo"),
        ("reading/read, folding/folded, burning/burned", "letter, newspaper, map, poster, book"),
        ("repairing/repaired, driving/driven, parking/parked", "car, truck, bus, tractor, van"),
        ("feeding/fed, brushing/brushed, chasing/chased", "dog, horse, cat, goat, pony"),
        ("building/built, painting/painted, measuring/measured", "wall, house, fence, shed, bridge"),
    ],
    [
        ("frying/fried, tasting/tasted, serving/served", "fish, steak, egg, pancake, sausage"),
        ("sewing/sewn, ironing/ironed, wearing/worn", "shirt, jacket, dress, coat, skirt"),
        ("kicking/kicked, catching/caught, throwing/thrown", "ball, stone, stick, bottle, pillow"),
        ("cleaning/cleaned, opening/opened, closing/closed", "window, door, box, gate, cupboard"),
    ],
)

CAPTIONS = {
    "subject": """
        man, woman, girl, boy, chef, soldier, clown, nurse, tourist, teenager
        | child, farmer, student, monk, sailor, waiter""",
    "place": """
        in the kitchen, on the beach, near the river, at the market, in the garden, on the roof
        | in the yard, by the lake, at the station, on the stairs, in the hall""",
}

# (active, passive): subject s, object o, verb v (-ing) or d (participle), place m; n is " not" or nothing
SIMILARITY = (
    [
        ("a {s} is{n} {v} the {o} {m}.", "the {o} is{n} being {d} by a {s} {m}."),
        ("{m}, a {s} was{n} {v} a {o}.", "{m}, a {o} was{n} being {d} by a {s}."),
        ("the {s} has{n} {d} a {o} {m}.", "a {o} has{n} been {d} by the {s} {m}."),
    ],
    [
        ("the {s} {m} is{n} {v} a {o}.", "a {o} is{n} being {d} by the {s} {m}."),
        ("right now the {s} was{n} {v} the {o} {m}.", "right now the {o} was{n} being {d} by the {s} {m}."),
    ],
)
